use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;

use super::*;
use crate::cli::failure::KernelAbsence;

/// How long anything may take before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reconnect that a test hands out, one after the other.
struct Handed(mpsc::Receiver<UnixStream>);

impl Reconnect for Handed {
    fn reconnect(&mut self, _waiting: &ReconnectWait<'_>) -> Result<UnixStream, Failure> {
        let none = |_| Failure::NotRunning(KernelAbsence::NotListening("/run/mgp.sock".into()));
        self.0.recv().map_err(none)
    }
}

/// A client that is joined to a kernel.
struct Joined {
    kernel: BufReader<UnixStream>,
    next: mpsc::Sender<UnixStream>,
    input: PipeWriter,
    output: BufReader<PipeReader>,
    done: mpsc::Receiver<Result<(), Failure>>,
}

impl Joined {
    fn new() -> Self {
        let (kernel, ours) = UnixStream::pair().unwrap();
        kernel.set_read_timeout(Some(PATIENCE)).unwrap();
        let ((stdin, input), (output, stdout)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let file = |end: OwnedFd| File::from(end);
        let (tell, done) = mpsc::channel();
        let (next, kernels) = mpsc::channel();
        thread::spawn(move || {
            tell.send(run(
                ours,
                file(stdin.into()),
                file(stdout.into()),
                Handed(kernels),
            ))
        });
        Self {
            kernel: BufReader::new(kernel),
            next,
            input,
            output: BufReader::new(output),
            done,
        }
    }

    fn says(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// What the kernel reads next.
    fn asked(&mut self) -> String {
        line(&mut self.kernel)
    }

    fn answers(&mut self, line: &str) {
        writeln!(self.kernel.get_mut(), "{line}").unwrap();
    }

    /// What the client reads next.
    fn heard(&mut self) -> String {
        line(&mut self.output)
    }

    /// The kernel goes away, and another one takes its place.
    fn replaced(&mut self) {
        let (kernel, ours) = UnixStream::pair().unwrap();
        kernel.set_read_timeout(Some(PATIENCE)).unwrap();
        self.kernel = BufReader::new(kernel);
        self.next.send(ours).unwrap();
    }

    /// A conversation of the session era, with one call answered.
    fn opened(&mut self) {
        self.says(TIMEOUT);
        assert_eq!(self.asked(), TIMEOUT);
        self.answers(WELCOME);
        assert_eq!(self.heard(), WELCOME);
        for line in [READY, LEVEL] {
            self.says(line);
            assert_eq!(self.asked(), line);
        }
        self.answers(DONE);
        assert_eq!(self.heard(), DONE);
    }

    /// The second kernel is told what the first one was.
    fn greets_again(&mut self) {
        for (said, answer) in [(TIMEOUT, WELCOME), (READY, ""), (LEVEL, DONE)] {
            assert_eq!(self.asked(), said);
            if !answer.is_empty() {
                self.answers(answer);
            }
        }
    }
}

const TIMEOUT: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
const WELCOME: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const LEVEL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#;
const DONE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const CALL: &str = r#"{"method":"tools/call","params":{"name":"a"},"jsonrpc":"2.0","id":7}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end_matches('\n').to_owned()
}

/// MCP-021, MCP-069: lines pass as they are, and the end of stdin is a good end, after the last answer.
#[test]
fn lines_pass_both_ways_until_stdin_ends() {
    let mut joined = Joined::new();
    joined.input.write_all(b"{\"a\":1}\r\n\n{\"b\"").unwrap();
    assert_eq!(joined.asked(), "{\"a\":1}\r");
    assert_eq!(joined.asked(), "");
    let Joined {
        mut kernel,
        input,
        mut output,
        done,
        ..
    } = joined;
    drop(input);
    let mut rest = String::new();
    kernel.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "{\"b\"");
    kernel.get_mut().write_all(b"{\"last\":1}\n").unwrap();
    drop(kernel);
    assert_eq!(line(&mut output), "{\"last\":1}");
    assert!(done.recv_timeout(PATIENCE).unwrap().is_ok());
}

/// Point 4: the next kernel is told what opened the conversation, what it answers stays here, what was
/// under way is answered, and the client hears that lists may have changed.
#[test]
fn a_conversation_goes_on_at_the_next_kernel() {
    let mut joined = Joined::new();
    joined.opened();
    joined.says(CALL);
    assert_eq!(joined.asked(), CALL);
    joined.replaced();
    let lost = joined.heard();
    assert!(
        lost.contains(r#""id":7,"error""#) && lost.contains(r#""outcome":"unknown""#),
        "{lost}"
    );
    joined.greets_again();
    assert_eq!(joined.heard(), CHANGED);
    joined.says(CALL);
    assert_eq!(
        joined.asked(),
        CALL,
        "it is not said before the client says it again"
    );
    joined.answers(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(joined.heard(), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
}

/// Point 4: an `initialize` without an answer is said again, and its answer is the client's.
#[test]
fn an_initialize_that_was_not_answered_is_answered_by_the_next_kernel() {
    let mut joined = Joined::new();
    joined.says(TIMEOUT);
    assert_eq!(joined.asked(), TIMEOUT);
    joined.replaced();
    assert_eq!(joined.asked(), TIMEOUT);
    joined.answers(WELCOME);
    assert_eq!(joined.heard(), WELCOME);
    joined.says(READY);
    assert_eq!(joined.asked(), READY);
}

/// Point 4: what was said while there was no kernel reaches the next one, once, and in its order.
#[test]
fn what_is_said_meanwhile_waits() {
    let mut joined = Joined::new();
    joined.opened();
    let (kernel, ours) = UnixStream::pair().unwrap();
    kernel.set_read_timeout(Some(PATIENCE)).unwrap();
    joined.kernel = BufReader::new(kernel);
    for id in 10..40 {
        joined.says(&CALL.replace('7', &id.to_string()));
    }
    joined.next.send(ours).unwrap();
    joined.greets_again();
    for id in 10..40 {
        assert_eq!(joined.asked(), CALL.replace('7', &id.to_string()));
    }
    assert_eq!(joined.heard(), CHANGED);
}

/// Point 4: a question of the old kernel is taken back, and an answer to it reaches no other one.
#[test]
fn a_question_ends_with_its_kernel() {
    let mut joined = Joined::new();
    joined.opened();
    let question = r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#;
    joined.answers(question);
    assert_eq!(joined.heard(), question);
    joined.replaced();
    joined.greets_again();
    let back = joined.heard();
    assert!(
        back.contains("notifications/cancelled") && back.contains(r#""requestId":3"#),
        "{back}"
    );
    assert_eq!(joined.heard(), CHANGED);
    joined.says(r#"{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}"#);
    joined.says(CALL);
    assert_eq!(joined.asked(), CALL);
}

/// Point 4: a kernel of another version ends it, in words.
#[test]
fn another_version_ends_it() {
    let mut joined = Joined::new();
    joined.opened();
    joined.replaced();
    assert_eq!(joined.asked(), TIMEOUT);
    joined.answers(&WELCOME.replace("2025-11-25", "2025-06-18"));
    let failure = joined.done.recv_timeout(PATIENCE).unwrap().unwrap_err();
    let told = failure.to_string();
    assert!(told.contains("2025-06-18 where 2025-11-25"), "{told}");
}

/// Point 4: when no kernel comes back, every request is answered, and the end says why.
#[test]
fn without_a_kernel_everything_is_answered() {
    let mut joined = Joined::new();
    joined.opened();
    drop(std::mem::replace(&mut joined.next, mpsc::channel().0));
    let (kernel, _) = UnixStream::pair().unwrap();
    joined.says(CALL);
    assert_eq!(joined.asked(), CALL);
    joined.kernel = BufReader::new(kernel);
    let lost = joined.heard();
    assert!(lost.contains(r#""id":7,"error""#), "{lost}");
    let failure = joined.done.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(failure.exit_code(), 3);
}

#[test]
fn a_client_that_goes_away_is_a_good_end() {
    let Joined {
        mut kernel,
        input,
        output,
        done,
        ..
    } = Joined::new();
    drop((output, input));
    let _ = kernel.get_mut().write_all(b"{}\n");
    drop(kernel);
    assert!(done.recv_timeout(PATIENCE).unwrap().is_ok());
}

/// A client that has said all it has to say still waits for its answers: without them it is no good end.
#[test]
fn what_a_kernel_owes_a_client_that_has_left_is_answered() {
    for answered in [true, false] {
        let mut joined = Joined::new();
        joined.opened();
        joined.says(CALL);
        assert_eq!(joined.asked(), CALL);
        let Joined {
            mut kernel,
            input,
            mut output,
            done,
            ..
        } = joined;
        drop(input);
        // The end of the input has come through.
        assert_eq!(line(&mut kernel), "");
        if answered {
            writeln!(
                kernel.get_mut(),
                r#"{{"jsonrpc":"2.0","id":7,"result":{{}}}}"#
            )
            .unwrap();
        }
        drop(kernel);
        let told = line(&mut output);
        let end = done.recv_timeout(PATIENCE).unwrap();
        if answered {
            assert!(told.contains(r#""result":{}"#) && end.is_ok(), "{told}")
        } else {
            assert!(told.contains(r#""id":7,"error""#), "{told}");
            assert_eq!(end.unwrap_err().exit_code(), 1);
        }
        assert_eq!(line(&mut output), "");
    }
}
