use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;

use super::*;
use crate::cli::failure::KernelAbsence;

/// Limit after which a test counts as failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Provides the connections of a test, one after the other.
struct QueuedConnections(mpsc::Receiver<UnixStream>);

impl Reconnect for QueuedConnections {
    fn reconnect(&mut self, _waiting: &ReconnectWait<'_>) -> Result<UnixStream, Failure> {
        let none = |_| Failure::NotRunning(KernelAbsence::NotListening("/run/mgp.sock".into()));
        self.0.recv().map_err(none)
    }
}

/// A client connected to a kernel.
struct ConnectedClient {
    kernel: BufReader<UnixStream>,
    next: mpsc::Sender<UnixStream>,
    input: PipeWriter,
    output: BufReader<PipeReader>,
    done: mpsc::Receiver<Result<(), Failure>>,
}

impl ConnectedClient {
    fn new() -> Self {
        let (kernel, ours) = UnixStream::pair().unwrap();
        kernel.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let ((stdin, input), (output, stdout)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let file = |end: OwnedFd| File::from(end);
        let (tell, done) = mpsc::channel();
        let (next, kernels) = mpsc::channel();
        thread::spawn(move || {
            tell.send(run(
                ours,
                file(stdin.into()),
                file(stdout.into()),
                QueuedConnections(kernels),
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

    fn send_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line that the kernel reads.
    fn next_request(&mut self) -> String {
        line(&mut self.kernel)
    }

    fn respond(&mut self, line: &str) {
        writeln!(self.kernel.get_mut(), "{line}").unwrap();
    }

    /// The next line that the client reads.
    fn next_output(&mut self) -> String {
        line(&mut self.output)
    }

    /// Replaces the kernel by another one.
    fn replace_kernel(&mut self) {
        let (kernel, ours) = UnixStream::pair().unwrap();
        kernel.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        self.kernel = BufReader::new(kernel);
        self.next.send(ours).unwrap();
    }

    /// A legacy conversation with one answered call.
    fn open_conversation(&mut self) {
        self.send_line(TIMEOUT);
        assert_eq!(self.next_request(), TIMEOUT);
        self.respond(WELCOME);
        assert_eq!(self.next_output(), WELCOME);
        for line in [READY, LEVEL] {
            self.send_line(line);
            assert_eq!(self.next_request(), line);
        }
        self.respond(DONE);
        assert_eq!(self.next_output(), DONE);
    }

    /// Answers the repeated handshake as the second kernel.
    fn repeat_handshake(&mut self) {
        for (said, answer) in [(TIMEOUT, WELCOME), (READY, ""), (LEVEL, DONE)] {
            assert_eq!(self.next_request(), said);
            if !answer.is_empty() {
                self.respond(answer);
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

/// MCP-021, MCP-069: lines pass unchanged, and the end of stdin is a success after the last answer.
#[test]
fn lines_pass_both_ways_until_stdin_ends() {
    let mut joined = ConnectedClient::new();
    joined.input.write_all(b"{\"a\":1}\r\n\n{\"b\"").unwrap();
    assert_eq!(joined.next_request(), "{\"a\":1}\r");
    assert_eq!(joined.next_request(), "");
    let ConnectedClient {
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
    assert!(done.recv_timeout(TEST_TIMEOUT).unwrap().is_ok());
}

/// Point 4: the next kernel receives the handshake, its answers are consumed, requests in flight are answered, and the
/// client learns that lists may have changed.
#[test]
fn a_conversation_continues_at_the_next_kernel() {
    let mut joined = ConnectedClient::new();
    joined.open_conversation();
    joined.send_line(CALL);
    assert_eq!(joined.next_request(), CALL);
    joined.replace_kernel();
    let lost = joined.next_output();
    assert!(
        lost.contains(r#""id":7,"error""#) && lost.contains(r#""outcome":"unknown""#),
        "{lost}"
    );
    joined.repeat_handshake();
    assert_eq!(joined.next_output(), CHANGED);
    joined.send_line(CALL);
    assert_eq!(
        joined.next_request(),
        CALL,
        "it is not said before the client says it again"
    );
    joined.respond(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert_eq!(
        joined.next_output(),
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
    );
}

/// Point 4: an unanswered `initialize` is sent again, and its answer is passed to the client.
#[test]
fn an_unanswered_initialize_is_answered_by_the_next_kernel() {
    let mut joined = ConnectedClient::new();
    joined.send_line(TIMEOUT);
    assert_eq!(joined.next_request(), TIMEOUT);
    joined.replace_kernel();
    assert_eq!(joined.next_request(), TIMEOUT);
    joined.respond(WELCOME);
    assert_eq!(joined.next_output(), WELCOME);
    joined.send_line(READY);
    assert_eq!(joined.next_request(), READY);
}

/// Point 4: what was sent without a kernel reaches the next one once, in order.
#[test]
fn messages_wait_for_the_next_kernel() {
    let mut joined = ConnectedClient::new();
    joined.open_conversation();
    let (kernel, ours) = UnixStream::pair().unwrap();
    kernel.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    joined.kernel = BufReader::new(kernel);
    for id in 10..40 {
        joined.send_line(&CALL.replace('7', &id.to_string()));
    }
    joined.next.send(ours).unwrap();
    joined.repeat_handshake();
    for id in 10..40 {
        assert_eq!(joined.next_request(), CALL.replace('7', &id.to_string()));
    }
    assert_eq!(joined.next_output(), CHANGED);
}

/// Point 4: a request of the old kernel is cancelled, and an answer to it reaches no other kernel.
#[test]
fn kernel_requests_end_with_their_kernel() {
    let mut joined = ConnectedClient::new();
    joined.open_conversation();
    let question = r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#;
    joined.respond(question);
    assert_eq!(joined.next_output(), question);
    joined.replace_kernel();
    joined.repeat_handshake();
    let back = joined.next_output();
    assert!(
        back.contains("notifications/cancelled") && back.contains(r#""requestId":3"#),
        "{back}"
    );
    assert_eq!(joined.next_output(), CHANGED);
    joined.send_line(r#"{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}"#);
    joined.send_line(CALL);
    assert_eq!(joined.next_request(), CALL);
}

/// Point 4: a kernel of another version ends the conversation, with a message.
#[test]
fn a_kernel_of_another_version_ends_the_conversation() {
    let mut joined = ConnectedClient::new();
    joined.open_conversation();
    joined.replace_kernel();
    assert_eq!(joined.next_request(), TIMEOUT);
    joined.respond(&WELCOME.replace("2025-11-25", "2025-06-18"));
    let failure = joined.done.recv_timeout(TEST_TIMEOUT).unwrap().unwrap_err();
    let told = failure.to_string();
    assert!(told.contains("2025-06-18 where 2025-11-25"), "{told}");
}

/// Point 4: without a next kernel, every request is answered, and the end reports why.
#[test]
fn without_a_kernel_all_requests_are_answered() {
    let mut joined = ConnectedClient::new();
    joined.open_conversation();
    drop(std::mem::replace(&mut joined.next, mpsc::channel().0));
    let (kernel, _) = UnixStream::pair().unwrap();
    joined.send_line(CALL);
    assert_eq!(joined.next_request(), CALL);
    joined.kernel = BufReader::new(kernel);
    let lost = joined.next_output();
    assert!(lost.contains(r#""id":7,"error""#), "{lost}");
    let failure = joined.done.recv_timeout(TEST_TIMEOUT).unwrap().unwrap_err();
    assert_eq!(failure.exit_code(), 3);
}

#[test]
fn the_end_of_the_client_is_a_success() {
    let ConnectedClient {
        mut kernel,
        input,
        output,
        done,
        ..
    } = ConnectedClient::new();
    drop((output, input));
    let _ = kernel.get_mut().write_all(b"{}\n");
    drop(kernel);
    assert!(done.recv_timeout(TEST_TIMEOUT).unwrap().is_ok());
}

/// A client that has ended its input still waits for its answers: without them it is no success.
#[test]
fn requests_of_a_client_that_has_left_are_answered() {
    for answered in [true, false] {
        let mut joined = ConnectedClient::new();
        joined.open_conversation();
        joined.send_line(CALL);
        assert_eq!(joined.next_request(), CALL);
        let ConnectedClient {
            mut kernel,
            input,
            mut output,
            done,
            ..
        } = joined;
        drop(input);
        // The end of the input has been forwarded.
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
        let end = done.recv_timeout(TEST_TIMEOUT).unwrap();
        if answered {
            assert!(told.contains(r#""result":{}"#) && end.is_ok(), "{told}")
        } else {
            assert!(told.contains(r#""id":7,"error""#), "{told}");
            assert_eq!(end.unwrap_err().exit_code(), 1);
        }
        assert_eq!(line(&mut output), "");
    }
}
