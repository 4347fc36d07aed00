// SPDX-License-Identifier: BSD-3-Clause
//! Messages in loaned memory by iceoryx2, measured as `ropeway perf --ops loan` measures ours: two
//! processes that poll, a service for each direction.
//!
//!     ropeway-bench-iceoryx2 server|client NAME lat|rate BYTES SECONDS VIEWS WINDOW
//!
//! Each loan is filled before it is first sent, and of the views that are left at the end every
//! byte is checked; in between only the number of a message is written, and checked of each. The
//! receiver keeps VIEWS of them. The client prints one line of JSON. lat: from the loan's send to
//! the return of the view, half of a round trip, the median. rate: the receiver says when it has a
//! window of messages, and two windows are the most that is under way.

use iceoryx2::port::{publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::*;
use iceoryx2::sample::Sample;
use iceoryx2::sample_mut::SampleMut;
use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

type Ipc = ipc::Service;
type Loan = SampleMut<Ipc, [u8], ()>;
type View = Sample<Ipc, [u8], ()>;

const LAST: u64 = u64::MAX;
const WARM_UP: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(20);

fn word(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct Side {
    to: Publisher<Ipc, [u8], ()>,
    from: Subscriber<Ipc, [u8], ()>,
    bytes: usize,
    views_most: usize,
    views: VecDeque<View>,
    sent: u64,
    received: u64,
}

impl Side {
    /// A loan with what its last user left in it, but filled when it is met first.
    fn loan(&mut self) -> Result<Loan, Box<dyn Error>> {
        let mut loan = unsafe { self.to.loan_slice_uninit(self.bytes)?.assume_init() };
        if loan.payload()[8..16] != word(1).to_ne_bytes() {
            for (i, chunk) in loan.payload_mut().chunks_exact_mut(8).enumerate() {
                chunk.copy_from_slice(&word(i).to_ne_bytes());
            }
        }
        Ok(loan)
    }

    fn send(&mut self, mut loan: Loan, number: u64) -> Result<(), Box<dyn Error>> {
        loan.payload_mut()[..8].copy_from_slice(&number.to_ne_bytes());
        if loan.send()? != 1 {
            return Err("a message had no receiver".into());
        }
        self.sent += 1;
        Ok(())
    }

    /// The oldest view goes back before, as where there is no room for one more.
    fn make_room(&mut self) {
        if self.views.len() == self.views_most {
            self.views.pop_front();
        }
    }

    fn receive(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut until = None;
        for turn in 0u64.. {
            if let Some(view) = self.from.receive()? {
                let number = u64::from_ne_bytes(view.payload()[..8].try_into()?);
                if view.payload().len() != self.bytes || (number != LAST && number != self.received)
                {
                    return Err(format!("message {} has number {number}", self.received).into());
                }
                self.received += 1;
                self.views.push_back(view);
                return Ok(number);
            }
            if turn % (1 << 20) == 1 << 19 {
                let end = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() > end {
                    return Err("the peer sent nothing for 20 s".into());
                }
            }
        }
        unreachable!()
    }

    fn check(&self) -> Result<(), Box<dyn Error>> {
        for view in &self.views {
            for (i, chunk) in view.payload().chunks_exact(8).enumerate().skip(1) {
                if chunk != word(i).to_ne_bytes() {
                    return Err(format!("word {i} of a message is wrong").into());
                }
            }
        }
        Ok(())
    }

    fn exchange(&mut self, seconds: f64) -> Result<f64, Box<dyn Error>> {
        let mut trips: Vec<Duration> = Vec::with_capacity(1 << 22);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            let loan = self.loan()?;
            self.make_room();
            let sent = Instant::now();
            self.send(loan, self.sent)?;
            self.receive()?;
            let now = Instant::now();
            if self.received > WARM_UP {
                trips.push(now - sent);
            }
            if now > end && !trips.is_empty() {
                break;
            }
        }
        let loan = self.loan()?;
        self.send(loan, LAST)?;
        let middle = trips.len() / 2;
        let median = *trips.select_nth_unstable(middle).1;
        Ok(median.as_secs_f64() * 1e6 / 2.0)
    }

    fn answer(&mut self) -> Result<(), Box<dyn Error>> {
        let mut loan = self.loan()?;
        while self.receive()? != LAST {
            self.send(loan, self.sent)?;
            loan = self.loan()?;
            self.make_room();
        }
        Ok(())
    }

    fn pour(&mut self, seconds: f64, window: u64) -> Result<f64, Box<dyn Error>> {
        let began = Instant::now();
        let mut counted = (0, began);
        loop {
            if self.sent >= 2 * window && self.sent % window == 0 {
                self.make_room();
                self.receive()?;
                let now = Instant::now();
                if counted.0 == 0 && self.sent >= 16 * window {
                    counted = (self.sent, now); // every page is there
                } else if counted.0 != 0 && (now - counted.1).as_secs_f64() > seconds {
                    break;
                }
            }
            let loan = self.loan()?;
            self.send(loan, self.sent)?;
        }
        while self.received < self.sent / window {
            self.make_room();
            self.receive()?;
        }
        let rate = (self.sent - counted.0) as f64 / counted.1.elapsed().as_secs_f64();
        let loan = self.loan()?;
        self.send(loan, LAST)?;
        Ok(rate)
    }

    fn drink(&mut self, window: u64) -> Result<(), Box<dyn Error>> {
        while self.receive()? != LAST {
            if self.received % window == 0 {
                let loan = self.loan()?;
                self.send(loan, self.sent)?;
            }
            self.make_room();
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, role, name, what, bytes, seconds, views, window] = &words[..] else {
        return Err("server|client NAME lat|rate BYTES SECONDS VIEWS WINDOW".into());
    };
    let (bytes, seconds, views_most, window): (usize, f64, usize, usize) = (
        bytes.parse()?,
        seconds.parse()?,
        views.parse()?,
        window.parse()?,
    );
    let client = role == "client";
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<Ipc>()?;
    let open = |direction: &str| {
        node.service_builder(&format!("{name}/{direction}").as_str().try_into().unwrap())
            .publish_subscribe::<[u8]>()
            .payload_alignment(Alignment::new(64).unwrap())
            .enable_safe_overflow(false)
            .history_size(0)
            .max_publishers(1)
            .max_subscribers(1)
            .subscriber_max_buffer_size(2 * window + 1)
            .subscriber_max_borrowed_samples(views_most + 1)
            .open_or_create()
    };
    let (there, back) = (open("there")?, open("back")?);
    let (out, into) = if client {
        (&there, &back)
    } else {
        (&back, &there)
    };
    let mut side = Side {
        to: out
            .publisher_builder()
            .initial_max_slice_len(bytes)
            .max_loaned_samples(2)
            .create()?,
        from: into.subscriber_builder().create()?,
        bytes,
        views_most,
        views: VecDeque::new(),
        sent: 0,
        received: 0,
    };
    let until = Instant::now() + PATIENCE;
    while out.dynamic_config().number_of_subscribers() == 0
        || into.dynamic_config().number_of_publishers() == 0
    {
        if Instant::now() > until {
            return Err("the peer did not come within 20 s".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    match (client, what.as_str()) {
        (true, "lat") => println!("{{\"latency_us\": {:.4}}}", side.exchange(seconds)?),
        (true, "rate") => println!(
            "{{\"messages_per_second\": {:.1}}}",
            side.pour(seconds, window as u64)?
        ),
        (false, "lat") => side.answer()?,
        (false, "rate") => side.drink(window as u64)?,
        _ => return Err("lat or rate is needed".into()),
    }
    side.check()
}
