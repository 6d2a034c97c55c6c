//! A cable that is bad: by `tc netem` where the system has it, else by a program in the cable's place.

use std::fmt::{self, Display};

use crate::harness::process::Process;
use crate::harness::{DEADLINE, Program};

/// What stands in the cable's place.
const PROGRAM: &str = include_str!("cable.py");

/// How bad the way from a machine is.
#[derive(Debug, Clone, Copy, Default)]
pub struct BadCable {
    /// How long a packet is held up, in milliseconds.
    pub delay_ms: u32,
    /// By how much that differs from packet to packet.
    pub spread_ms: u32,
    /// How many of a hundred are lost.
    pub lost: u32,
    /// How many of a hundred are not held up, and so overtake the others.
    pub early: u32,
}

/// As `tc netem` is told.
impl Display for BadCable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            delay_ms,
            spread_ms,
            lost,
            early,
        } = self;
        write!(f, "delay {delay_ms}ms {spread_ms}ms loss {lost}%")?;
        match early {
            0 => Ok(()),
            early => write!(f, " reorder {early}%"),
        }
    }
}

impl BadCable {
    /// Starts the program that is the cable from one interface to the other, both in this namespace.
    pub(super) async fn between(self, namespace: &str, machine: &str, others: &str) -> Process {
        let mut words = [
            "netns", "exec", namespace, "python3", "-c", PROGRAM, machine, others,
        ]
        .map(str::to_owned)
        .to_vec();
        let numbers = [self.delay_ms, self.spread_ms, self.lost, self.early];
        words.extend(numbers.map(|number| number.to_string()));
        let mut process = Process::start("a bad cable", &Program::new("ip", words));
        let ready = |said: &str| said.contains("ready").then_some(());
        process.says("that it is ready", DEADLINE, ready).await;
        process
    }
}
