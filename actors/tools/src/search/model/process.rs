//! The kernel's side of the process that runs the model: starts it, sends requests, and kills it if it does anything
//! but answer. Its output is not trusted beyond the format of its frames.

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

/// The program that runs the model, and how long it may take.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path. `/proc/self/exe` survives an upgrade of the file.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// How long it may take to load the model, and to answer. At the lowest priority on a busy machine a
    /// text may take some seconds.
    pub timeout: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessError {
    /// The process ended, or was killed for what it did.
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

/// Shared by the thread that reads its answers and those that ask.
#[derive(Debug)]
struct Answers {
    child: Mutex<Child>,
    /// Those who wait for an answer: one of each lane at most.
    waiters: [Mutex<Option<SyncSender<Vectors>>>; EmbeddingLane::ALL.len()],
    /// Set once, before those who wait are woken.
    end_reason: OnceLock<ProcessError>,
    /// Its pid, while it runs.
    running: Arc<AtomicU32>,
}

impl Process {
    /// Starts it, and waits until the model is loaded. Also returns which restrictions could not be applied.
    /// Its pid is in `running` until it ends. Blocks. It dies with the calling thread.
    ///
    /// # Errors
    /// It cannot be started, or does not load the model in time.
    pub(super) fn start(
        program: &Program,
        running: &Arc<AtomicU32>,
    ) -> Result<(Self, String), ProcessError> {
        let broken =
            |error: io::Error| ProcessError::Died(format!("it cannot be started: {error}"));
        let mut child = Command::new(&program.exe)
            .args(&program.args)
            .env_clear()
            .current_dir("/")
            // Signals that a terminal sends to the kernel's group do not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(broken)?;
        let line = child.stdin.take().expect("stdin is piped");
        let words = child.stdout.take().expect("stdout is piped");
        running.store(child.id(), Ordering::Relaxed);
        let answers = Arc::new(Answers {
            running: running.clone(),
            child: Mutex::new(child),
            waiters: [const { Mutex::new(None) }; EmbeddingLane::ALL.len()],
            end_reason: OnceLock::new(),
        });
        let process = Self {
            stdin: Mutex::new(line),
            timeout: program.timeout,
            answers,
        };
        process.prepare().map_err(broken)?;
        let (ready, loaded) = sync_channel(1);
        let answers = process.answers.clone();
        let listening = move || answers.read_answers(BufReader::new(words), &ready);
        let thread = std::thread::Builder::new().name("model".into());
        thread.spawn(listening).map_err(broken)?;
        let less = loaded.recv_timeout(program.timeout);
        let less = less.map_err(|error| process.missing_answer(error))?;
        Ok((process, less))
    }

    /// A process that does not read its requests must not block those who ask.
    fn prepare(&self) -> io::Result<()> {
        let flags = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
        fcntl(lock(&self.stdin).as_fd(), flags)?;
        Ok(())
    }

    /// The vectors of the texts of one request. Blocks, at most for the program's patience.
    ///
    /// # Errors
    /// The process has ended, and is not started again.
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
        sent.map_err(|error| self.answers.kill(format!("it takes no requests: {error}")))?;
        let left = until.saturating_duration_since(Instant::now());
        let vectors = answer.recv_timeout(left);
        let vectors = vectors.map_err(|error| self.missing_answer(error))?;
        if vectors.len() == texts.len() {
            Ok(vectors)
        } else {
            Err(self.answers.kill(format!(
                "it answered {} vectors to {} texts",
                vectors.len(),
                texts.len()
            )))
        }
    }

    fn send(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        let mut line = lock(&self.stdin);
        while !bytes.is_empty() {
            match line.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                    let mut room = [PollFd::new(line.as_fd(), PollFlags::POLLOUT)];
                    if poll(&mut room, left)? == 0 {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Wakes those who wait when it ended; otherwise kills it for not answering in time.
    fn missing_answer(&self, why: RecvTimeoutError) -> ProcessError {
        let silent = format!("it said nothing for {} s", self.timeout.as_secs_f32());
        match why {
            RecvTimeoutError::Timeout => self.answers.kill(silent),
            RecvTimeoutError::Disconnected => self.answers.kill("it ended".into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.answers.kill("nobody needs it".into());
    }
}

impl Answers {
    /// Passes on its messages until it ends or sends something else.
    fn read_answers(&self, mut from: impl Read, ready: &SyncSender<String>) {
        let mut loaded = false;
        let ended = loop {
            match EmbedReply::read_from(&mut from) {
                Ok(Some(EmbedReply::Ready(less))) if !loaded => {
                    loaded = true;
                    let _ = ready.send(less);
                }
                Ok(Some(EmbedReply::Vectors(lane, vectors))) => {
                    let Some(reply) = lock(&self.waiters[lane as usize]).take() else {
                        break ProcessError::Died("it answered what nobody asked".into());
                    };
                    let _ = reply.send(vectors);
                }
                Ok(Some(EmbedReply::Failed(why))) => break ProcessError::Unfit(why),
                Ok(Some(EmbedReply::Ready(_))) => {
                    break ProcessError::Died("it says twice that it is ready".into());
                }
                Ok(None) => break ProcessError::Died(String::new()),
                Err(error) => break ProcessError::Died(format!("it answers nonsense: {error}")),
            }
        };
        self.finish(ended);
    }

    /// Kills and reaps it, records why, and wakes those who wait.
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
                ProcessError::Died(format!("it ended by itself: {status}"))
            }
            (ended, _) => ended,
        };
        let _ = self.end_reason.set(ended);
        for waiting in &self.waiters {
            drop(lock(waiting).take());
        }
    }

    /// Kills it for this reason, unless it had ended before; the reading thread sees its end. Answers why
    /// it ended.
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

    /// A script in the place of the program, which answers with these bytes.
    fn script(patience: Duration, steps: &[Step]) -> Program {
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
            timeout: patience,
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

    fn gone(pid: u32) {
        while std::fs::exists(format!("/proc/{pid}")).unwrap() {
            std::thread::yield_now();
        }
    }

    /// Why it ended, once the first request was not answered.
    fn ended(patience: Duration, steps: &[Step]) -> String {
        let (process, pid) = started(&script(patience, steps)).unwrap();
        let why = match process.embed(EmbeddingLane::Tools, &["one", "two"]) {
            Err(ProcessError::Died(why) | ProcessError::Unfit(why)) => why,
            Ok(vectors) => panic!("{}", vectors.len()),
        };
        let again = process.embed(EmbeddingLane::Requests, &["three"]);
        assert!(again.is_err(), "it does not come back");
        gone(pid);
        why
    }

    #[test]
    fn what_is_asked_is_answered_until_nobody_needs_it() {
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
        gone(pid);
    }

    /// A process that answers nonsense, too much, the wrong lane or nobody is ended, and it is said why.
    #[test]
    fn a_process_that_answers_nonsense_is_ended() {
        let two = &["one", "two"];
        let told = [
            (Says(vec![9; 64]), "nonsense"),
            (
                Says(vec![1, 0, 0xff, 0xff, 0xff, 0x7f]),
                "nonsense: 2147483647 where",
            ),
            (
                Says(EmbedReply::Failed("damaged".into()).encode()),
                "damaged",
            ),
            (vectors(EmbeddingLane::Tools, 3), "3 vectors to 2 texts"),
            (vectors(EmbeddingLane::Requests, 2), "what nobody asked"),
            (ready(), "twice"),
        ];
        for (said, why) in told {
            let told = ended(LONG, &[ready(), hears(two), said, Hangs]);
            assert!(told.contains(why), "{told}");
        }
        let told = ended(LONG, &[ready(), hears(two)]);
        assert!(told.contains("ended by itself: exit status: 0"), "{told}");
        let unasked = ended(LONG, &[ready(), vectors(EmbeddingLane::Tools, 1), Hangs]);
        assert!(
            unasked.contains("nobody asked") || unasked.contains("1 vectors"),
            "{unasked}"
        );
    }

    /// One that hangs holds up nobody for longer than it is given.
    #[test]
    fn a_process_that_hangs_is_ended() {
        let two = &["one", "two"];
        let silent = ended(SHORT, &[ready(), hears(two), Hangs]);
        assert!(silent.contains("said nothing"), "{silent}");
        let (process, _) = started(&script(SHORT, &[ready(), Hangs])).unwrap();
        let long = "x".repeat(mgp_embedding::BYTES_MAX);
        let deaf = process.embed(EmbeddingLane::Tools, &[long.as_str(); 16]);
        let Err(ProcessError::Died(deaf)) = deaf else {
            panic!("{deaf:?}");
        };
        assert!(deaf.contains("takes no requests"), "{deaf}");
        let late = started(&script(SHORT, &[Hangs])).map(drop);
        let Err(ProcessError::Died(late)) = late else {
            panic!("{late:?}");
        };
        assert!(late.contains("said nothing"), "{late}");
    }
}
