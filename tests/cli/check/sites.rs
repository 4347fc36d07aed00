// SPDX-License-Identifier: BSD-3-Clause
// sites.rs - as sites.c, in Rust.
extern "C" {
    fn record();
    fn print_report();
}

mod net {
    pub struct Queue<T>(pub T);

    impl<T: Copy> Queue<T> {
        #[inline(never)]
        pub fn post(&self) -> T {
            unsafe { super::record() } // line of post
            std::hint::black_box(self.0)
        }
    }
}

fn main() {
    let queue = net::Queue(std::hint::black_box(7u32));
    std::hint::black_box(queue.post()); // line of main
    unsafe { print_report() }
}
