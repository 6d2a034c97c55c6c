//! The kernel's side of the process that runs the model: starts it, sends requests, and kills it on any protocol
//! violation. Its output is not trusted beyond the format of its frames.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frames::{EmbedReply, EmbeddingLane, encode_request};

/// The program that runs the model, and its timeout.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path. [`mgp_platform::processes::own_program`] is this program.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The limit for loading the model, and for each answer. At the lowest priority on a busy machine a text may take
    /// some seconds.
    pub timeout: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessError {
    /// The process ended, or was killed for a violation.
    Died(String),
    /// It cannot run the model, now or later.
    Unfit(String),
}

type Vectors = Vec<Vec<f32>>;

/// A process that has loaded the model; killed when dropped, as it holds no state.
#[derive(Debug)]
pub(super) struct Process {
    stdin: Mutex<ChildStdin>,
    timeout: Duration,
    answers: Arc<Answers>,
}

/// Shared by the thread that reads answers and the threads that send requests.
#[derive(Debug)]
struct Answers {
    child: Mutex<Child>,
    /// The threads that wait for an answer, at most one for each lane.
    waiters: [Mutex<Option<SyncSender<Vectors>>>; EmbeddingLane::ALL.len()],
    /// Set once, before the waiters are woken.
    end_reason: OnceLock<ProcessError>,
    /// Its pid, while it runs.
    running: Arc<AtomicU32>,
}

impl Process {
    /// Starts the process, and waits until the model is loaded. Also returns the restrictions that could not be applied.
    /// The pid is in `running` until the process ends. Blocks. The process dies with the calling thread.
    ///
    /// # Errors
    /// It cannot be started, or does not load the model in time.
    pub(super) fn start(
        program: &Program,
        running: &Arc<AtomicU32>,
    ) -> Result<(Self, String), ProcessError> {
        let failed =
            |error: io::Error| ProcessError::Died(format!("it cannot be started: {error}"));
        let mut child = Command::new(&program.exe)
            .args(&program.args)
            .env_clear()
            // The allocator takes memory as it needs it: the gigabyte that it reserves at start would count against
            // the limit of this process.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .current_dir("/")
            // Signals that a terminal sends to the kernel's group do not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        running.store(child.id(), Ordering::Relaxed);
        let answers = Arc::new(Answers {
            running: running.clone(),
            child: Mutex::new(child),
            waiters: [const { Mutex::new(None) }; EmbeddingLane::ALL.len()],
            end_reason: OnceLock::new(),
        });
        let process = Self {
            stdin: Mutex::new(stdin),
            timeout: program.timeout,
            answers,
        };
        process.prepare().map_err(failed)?;
        let (ready, loaded) = sync_channel(1);
        let answers = process.answers.clone();
        let reader = move || answers.read_answers(BufReader::new(stdout), &ready);
        let thread = std::thread::Builder::new().name("model".into());
        thread.spawn(reader).map_err(failed)?;
        let unapplied = loaded.recv_timeout(program.timeout);
        let unapplied = unapplied.map_err(|error| process.missing_answer(error))?;
        Ok((process, unapplied))
    }

    /// Makes stdin nonblocking: a process that does not read must not block the callers.
    fn prepare(&self) -> io::Result<()> {
        let flags = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
        fcntl(lock(&self.stdin).as_fd(), flags)?;
        Ok(())
    }

    /// The vectors of the texts of one request. Blocks, at most for the program's timeout.
    ///
    /// # Errors
    /// The process has ended, and is not restarted.
    pub(super) fn embed(
        &self,
        lane: EmbeddingLane,
        texts: &[&str],
    ) -> Result<Vectors, ProcessError> {
        let until = Instant::now() + self.timeout;
        let (reply, answer) = sync_channel(1);
        *lock(&self.answers.waiters[lane as usize]) = Some(reply);
        if let Some(ended) = self.answers.end_reason.get() {
            return Err(ended.clone());
        }
        let sent = self.send(&encode_request(lane, texts), until);
        sent.map_err(|error| {
            self.answers
                .kill(format!("it accepts no requests: {error}"))
        })?;
        let left = until.saturating_duration_since(Instant::now());
        let vectors = answer.recv_timeout(left);
        let vectors = vectors.map_err(|error| self.missing_answer(error))?;
        if vectors.len() == texts.len() {
            Ok(vectors)
        } else {
            Err(self.answers.kill(format!(
                "it sent {} vectors for {} texts",
                vectors.len(),
                texts.len()
            )))
        }
    }

    fn send(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        let mut stdin = lock(&self.stdin);
        while !bytes.is_empty() {
            match stdin.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                    let mut writable = [PollFd::new(stdin.as_fd(), PollFlags::POLLOUT)];
                    if poll(&mut writable, left)? == 0 {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The reason of a missing answer; kills the process on a timeout.
    fn missing_answer(&self, why: RecvTimeoutError) -> ProcessError {
        let timed_out = format!("it did not answer for {} s", self.timeout.as_secs_f32());
        match why {
            RecvTimeoutError::Timeout => self.answers.kill(timed_out),
            RecvTimeoutError::Disconnected => self.answers.kill("it ended".into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.answers.kill("it is not needed".into());
    }
}

impl Answers {
    /// Forwards the answers until the process ends or violates the protocol.
    fn read_answers(&self, mut stdout: impl Read, ready: &SyncSender<String>) {
        let mut loaded = false;
        let ended = loop {
            match EmbedReply::read_from(&mut stdout) {
                Ok(Some(EmbedReply::Ready(unapplied))) if !loaded => {
                    loaded = true;
                    let _ = ready.send(unapplied);
                }
                Ok(Some(EmbedReply::Vectors(lane, vectors))) => {
                    let Some(reply) = lock(&self.waiters[lane as usize]).take() else {
                        break ProcessError::Died("it sent an unrequested answer".into());
                    };
                    let _ = reply.send(vectors);
                }
                Ok(Some(EmbedReply::Failed(why))) => break ProcessError::Unfit(why),
                Ok(Some(EmbedReply::Ready(_))) => {
                    break ProcessError::Died("it reported twice that it is ready".into());
                }
                Ok(None) => break ProcessError::Died(String::new()),
                Err(error) => {
                    break ProcessError::Died(format!("its answer is malformed: {error}"));
                }
            }
        };
        self.finish(ended);
    }

    /// Kills and reaps the process, records the reason, and wakes the waiters.
    fn finish(&self, ended: ProcessError) {
        let mut child = lock(&self.child);
        let _ = child.kill();
        let status = child.wait();
        // The next process may run already.
        let _ = self
            .running
            .compare_exchange(child.id(), 0, Ordering::Relaxed, Ordering::Relaxed);
        drop(child);
        let ended = match (ended, status) {
            (ProcessError::Died(why), Ok(status)) if why.is_empty() => {
                ProcessError::Died(format!("it exited: {status}"))
            }
            (ended, _) => ended,
        };
        let _ = self.end_reason.set(ended);
        for waiter in &self.waiters {
            drop(lock(waiter).take());
        }
    }

    /// Kills the process for this reason, unless it ended before; the reading thread notices. Returns the reason of its
    /// end.
    fn kill(&self, why: String) -> ProcessError {
        let ended = self.end_reason.get_or_init(|| ProcessError::Died(why));
        let _ = lock(&self.child).kill();
        ended.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use mgp_embedding::DIMENSION;

    use super::*;

    /// A script in place of the program, which answers with these bytes.
    fn script(timeout: Duration, steps: &[Step]) -> Program {
        let mut script = String::new();
        for step in steps {
            match step {
                Step::Says(bytes) => {
                    let octal = bytes.iter().fold(String::new(), |mut all, byte| {
                        let _ = write!(all, "\\{byte:03o}");
                        all
                    });
                    let _ = writeln!(script, "printf '{octal}'");
                }
                Step::Hears(bytes) => {
                    let _ = writeln!(script, "head -c {bytes} >/dev/null");
                }
                Step::Hangs => script += "exec sleep 1000\n",
            }
        }
        Program {
            exe: "/bin/sh".into(),
            args: vec!["-c".into(), format!("PATH=/usr/bin:/bin\n{script}")],
            timeout,
        }
    }

    enum Step {
        Says(Vec<u8>),
        Hears(usize),
        Hangs,
    }
    use Step::{Hangs, Hears, Says};

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(300);

    fn ready() -> Step {
        Says(EmbedReply::Ready("none".into()).encode())
    }

    fn vectors(lane: EmbeddingLane, count: usize) -> Step {
        Says(EmbedReply::Vectors(lane, vec![vec![0.5; DIMENSION]; count]).encode())
    }

    fn hears(texts: &[&str]) -> Step {
        Hears(encode_request(EmbeddingLane::Tools, texts).len())
    }

    fn started(program: &Program) -> Result<(Process, u32), ProcessError> {
        let running = Arc::default();
        let (process, less) = Process::start(program, &running)?;
        assert_eq!(less, "none");
        Ok((process, running.load(Ordering::Relaxed)))
    }

    fn wait_reaped(pid: u32) {
        while std::fs::exists(format!("/proc/{pid}")).unwrap() {
            std::thread::yield_now();
        }
    }

    /// The reason of the end, after the first request was not answered.
    fn end_reason(timeout: Duration, steps: &[Step]) -> String {
        let (process, pid) = started(&script(timeout, steps)).unwrap();
        let why = match process.embed(EmbeddingLane::Tools, &["one", "two"]) {
            Err(ProcessError::Died(why) | ProcessError::Unfit(why)) => why,
            Ok(vectors) => panic!("{}", vectors.len()),
        };
        let second = process.embed(EmbeddingLane::Requests, &["three"]);
        assert!(second.is_err(), "it is not restarted");
        wait_reaped(pid);
        why
    }

    #[test]
    fn requests_are_answered_until_the_process_is_dropped() {
        let steps = [
            ready(),
            hears(&["one"]),
            vectors(EmbeddingLane::Tools, 1),
            Hangs,
        ];
        let (process, pid) = started(&script(LONG, &steps)).unwrap();
        let vectors = process.embed(EmbeddingLane::Tools, &["one"]).unwrap();
        assert_eq!(vectors, [vec![0.5; DIMENSION]]);
        assert!(std::fs::exists(format!("/proc/{pid}")).unwrap());
        drop(process);
        wait_reaped(pid);
    }

    /// A process with a malformed, oversized, misdirected or unrequested answer is killed, and the reason is reported.
    #[test]
    fn a_protocol_violation_kills_the_process() {
        let two = &["one", "two"];
        let violations = [
            (Says(vec![9; 64]), "malformed"),
            (
                Says(vec![1, 0, 0xff, 0xff, 0xff, 0x7f]),
                "malformed: 2147483647 where",
            ),
            (
                Says(EmbedReply::Failed("damaged".into()).encode()),
                "damaged",
            ),
            (vectors(EmbeddingLane::Tools, 3), "3 vectors for 2 texts"),
            (vectors(EmbeddingLane::Requests, 2), "unrequested"),
            (ready(), "twice"),
        ];
        for (answer, expected) in violations {
            let reason = end_reason(LONG, &[ready(), hears(two), answer, Hangs]);
            assert!(reason.contains(expected), "{reason}");
        }
        let reason = end_reason(LONG, &[ready(), hears(two)]);
        assert!(reason.contains("exited: exit status: 0"), "{reason}");
        let unrequested = end_reason(LONG, &[ready(), vectors(EmbeddingLane::Tools, 1), Hangs]);
        assert!(
            unrequested.contains("unrequested") || unrequested.contains("1 vectors"),
            "{unrequested}"
        );
    }

    /// A process that hangs blocks its callers no longer than the timeout.
    #[test]
    fn a_process_that_hangs_is_killed() {
        let two = &["one", "two"];
        let silent = end_reason(SHORT, &[ready(), hears(two), Hangs]);
        assert!(silent.contains("did not answer"), "{silent}");
        let (process, _) = started(&script(SHORT, &[ready(), Hangs])).unwrap();
        let long = "x".repeat(mgp_embedding::BYTES_MAX);
        let stuck = process.embed(EmbeddingLane::Tools, &[long.as_str(); 16]);
        let Err(ProcessError::Died(stuck)) = stuck else {
            panic!("{stuck:?}");
        };
        assert!(stuck.contains("accepts no requests"), "{stuck}");
        let late = started(&script(SHORT, &[Hangs])).map(drop);
        let Err(ProcessError::Died(late)) = late else {
            panic!("{late:?}");
        };
        assert!(late.contains("did not answer"), "{late}");
    }
}
