//! One stdio server with many calls in flight on its one pipe.

use std::io;
use std::process::Stdio;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::bounds::Allowance;
use super::http::SPOKEN;
use super::latency::Latencies;
use super::{Bounds, Request, Run, Talk, request};
use crate::harness::Program;
use crate::harness::handshake::initialize;

/// More calls in flight than any run has; ids of one call and the next of its slot differ by it.
const SLOTS: u64 = 1000;

/// Room for a batch of lines in either direction.
const BATCH: usize = 256 * 1024;

/// A server that is a child of this process; it ends with it.
#[derive(Debug)]
pub struct PipeLoad {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl PipeLoad {
    /// Starts a server and initializes it where it is spoken to in a session.
    ///
    /// # Errors
    /// When it does not start or leaves.
    ///
    /// # Panics
    /// Never: both pipes are asked for.
    pub async fn start(program: &Program, talk: Talk) -> io::Result<Self> {
        let mut command = Command::from(program.to_command());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.kill_on_drop(true).spawn()?;
        let input = child.stdin.take().expect("stdin is piped");
        let output = child.stdout.take().expect("stdout is piped");
        let mut load = Self {
            child,
            input: BufWriter::with_capacity(BATCH, input),
            output: BufReader::with_capacity(BATCH, output),
        };
        if talk == Talk::Session {
            let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            load.send(initialize(SPOKEN, "{}").as_bytes()).await?;
            load.line().await?;
            load.send(initialized.as_bytes()).await?;
        }
        Ok(load)
    }

    /// The process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Sends the request again and again, `in_flight` at a time, until the bounds are reached.
    ///
    /// # Errors
    /// When the server leaves or an answer is no result.
    pub async fn run(
        &mut self,
        request: &Request,
        in_flight: usize,
        bounds: Bounds,
    ) -> io::Result<Run> {
        let (free, slots) = mpsc::unbounded_channel();
        for slot in 0..in_flight as u64 {
            free.send(slot).map_err(io::Error::other)?;
        }
        let allowance = bounds.allowance();
        let mut flight = Flight {
            started: vec![Instant::now(); in_flight],
            latencies: Latencies::with_room(bounds.calls),
            free,
        };
        let start = Instant::now();
        let (asked, answered) = tokio::join!(
            ask(&mut self.input, request.line(), slots),
            flight.take_answers(&mut self.output, &allowance),
        );
        asked?;
        answered?;
        Ok(Run {
            latencies: flight.latencies,
            elapsed: start.elapsed(),
        })
    }

    /// One call whose whole answer is given back.
    ///
    /// # Errors
    /// When the server leaves.
    pub async fn once(&mut self, request: &Request) -> io::Result<String> {
        let mut request = request.clone();
        self.send(request.with_id(0)).await?;
        self.line().await
    }

    async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.input.write_all(frame).await?;
        self.input.write_all(b"\n").await?;
        self.input.flush().await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).await?;
        Ok(line)
    }
}

/// The calls that are under way.
struct Flight {
    started: Vec<Instant>,
    latencies: Latencies,
    free: mpsc::UnboundedSender<u64>,
}

impl Flight {
    /// Reads answers until every slot has found the allowance spent, which ends the asking too.
    async fn take_answers(
        &mut self,
        output: &mut BufReader<ChildStdout>,
        allowance: &Allowance,
    ) -> io::Result<()> {
        let (mut line, mut busy) = (Vec::with_capacity(BATCH), self.started.len());
        while busy > 0 {
            line.clear();
            if output.read_until(b'\n', &mut line).await? == 0 {
                return Err(io::Error::other("the server left"));
            }
            let slot = request::number(&line).filter(|_| request::is_result(&line));
            let Some(slot) = slot.map(|n| n % SLOTS) else {
                let told = String::from_utf8_lossy(&line);
                return Err(io::Error::other(format!("no result: {told:.500}")));
            };
            let now = Instant::now();
            let at = usize::try_from(slot).expect("a slot is small");
            self.latencies.add(now - self.started[at]);
            self.started[at] = now;
            if allowance.take(now) {
                self.free.send(slot).map_err(io::Error::other)?
            } else {
                busy -= 1
            }
        }
        self.free = mpsc::unbounded_channel().0;
        Ok(())
    }
}

/// Writes a request for every slot that comes free, as many at once as there are.
async fn ask(
    input: &mut BufWriter<ChildStdin>,
    mut request: Request,
    mut slots: mpsc::UnboundedReceiver<u64>,
) -> io::Result<()> {
    let mut round = 0;
    while let Some(slot) = slots.recv().await {
        round += 1;
        input
            .write_all(request.with_id(round * SLOTS + slot))
            .await?;
        if slots.is_empty() {
            input.flush().await?;
        }
    }
    Ok(())
}
