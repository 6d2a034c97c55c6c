//! The scripted server over HTTP, as a process of its own.

use super::{DEADLINE, Process, Program};

/// A running `mgp-fixture --http`. Dropping it ends it; so does the end of this process.
#[derive(Debug)]
pub struct Upstream {
    process: Process,
    port: u16,
}

impl Upstream {
    /// Starts it with more flags, on a free port.
    ///
    /// # Panics
    /// When it does not listen by the deadline.
    pub async fn start(flags: &[&str]) -> Self {
        let args = [&["--http", "0", "--until-eof"], flags].concat();
        let mut process = Process::start("mgp-fixture", &Program::ours("mgp-fixture", args));
        let port = process.says("its port", DEADLINE, listening).await;
        Self { process, port }
    }

    /// Its Streamable HTTP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Its port on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

fn listening(said: &str) -> Option<u16> {
    let (_, rest) = said.split_once("listening 127.0.0.1:")?;
    rest.split_once('\n')?.0.trim().parse().ok()
}
