// SPDX-License-Identifier: BSD-3-Clause
//! What Rust's std sees of a device: as filesystem.cpp prints it.
use std::{env, fs, path::Path};

fn walk(root: &Path, dir: &Path) {
    for e in fs::read_dir(dir).unwrap() {
        let e = e.unwrap();
        let t = e.file_type().unwrap();
        let c = if t.is_symlink() { 'l' } else if t.is_dir() { 'd' } else { '-' };
        println!("{} {}", c, e.path().strip_prefix(root).unwrap().display());
        if t.is_dir() {
            walk(root, &e.path());
        }
    }
}

fn main() {
    let arg = env::args().nth(1).unwrap();
    let dir = Path::new(&arg);
    walk(dir, dir);
    println!("guid {}", fs::read_to_string(dir.join("node_guid")).unwrap().trim());
    println!("path {}", fs::canonicalize(dir).unwrap().display());
    println!("link {}", fs::read_link(dir).unwrap().display());
    env::set_current_dir(dir.join("ports")).unwrap();
    println!("cwd {} {}", env::current_dir().unwrap().display(), Path::new("1/state").exists() as u8);
}
