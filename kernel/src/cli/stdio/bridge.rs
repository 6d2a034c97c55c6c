//! Passes lines between the client and the kernel unchanged, and from one kernel to the next when the first one is
//! lost.
//!
//! One thread reads the client, one the kernel. The latter detects the loss of a kernel, and connects to the next.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mgp_protocol::jsonrpc::{self, ErrorObject, INTERNAL_ERROR, RequestId};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::refusal::CallOutcome;
use serde_json::json;

use super::conversation::ConversationState;
use super::line_reader::{LineBatch, LineReader, split_lines};
use super::resume;
use crate::cli::failure::Failure;
use crate::cli::print::print_error;

/// Time for the kernel's answers after stdin has ended: hosts wait about 2 s for a program to end, then kill it.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(1500);

/// Connects to the next kernel after a loss.
pub(super) trait Reconnect: Send + 'static {
    /// A connection with an open endpoint; retries as long as `waiting` allows.
    ///
    /// # Errors
    /// Why no kernel is available, or no longer expected.
    fn reconnect(&mut self, waiting: &ReconnectWait<'_>) -> Result<UnixStream, Failure>;
}

/// The state that bounds the search for a kernel.
pub(super) struct ReconnectWait<'b>(&'b Bridge);

impl ReconnectWait<'_> {
    /// Whether the client is gone.
    pub(super) fn client_left(&self) -> bool {
        self.0.lock_connection().client_left
    }

    /// When the oldest waiting request was sent.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.0.lock_connection().waiting_since
    }
}

/// State shared by both threads.
pub(super) struct Bridge {
    connection: Mutex<KernelConnection>,
    changed: Condvar,
    conversation: Mutex<ConversationState>,
    output: Mutex<File>,
}

/// The connection to the kernel, and the requests that wait for it.
struct KernelConnection {
    socket: UnixStream,
    /// The number of the kernel; none while the next one is being found.
    generation: Option<u64>,
    client_left: bool,
    /// Since when requests wait for the next kernel.
    waiting_since: Option<Instant>,
    waiting: Vec<RequestId>,
}

/// Why the bridge ends.
pub(super) enum BridgeEnd {
    /// The client is gone: end of input, or stdout closed.
    Client,
    Kernel(Failure),
}

/// Passes lines on until the client leaves or no kernel is found. The client's end is a success (MCP-021), unless the
/// kernel was lost before it had answered all requests.
pub(super) fn run(
    socket: UnixStream,
    input: File,
    output: File,
    kernels: impl Reconnect,
) -> Result<(), Failure> {
    let reader = socket.try_clone()?;
    let bridge = Arc::new(Bridge::new(socket, output));
    let (ended, ends) = mpsc::channel();
    let (client_bridge, client_ended) = (bridge.clone(), ended.clone());
    thread::spawn(move || {
        client_bridge.client_to_kernel(input);
        // The receiver is gone if the other side ended first.
        let _ = client_ended.send(BridgeEnd::Client);
    });
    let hearing = bridge.clone();
    thread::spawn(move || {
        let _ = ended.send(hearing.kernel_to_client(reader, kernels));
    });
    match ends.recv().expect("a thread tells its end") {
        BridgeEnd::Kernel(failure) => Err(failure),
        BridgeEnd::Client => match ends.recv_timeout(DRAIN_TIMEOUT) {
            Ok(BridgeEnd::Kernel(failure)) => Err(failure),
            Ok(BridgeEnd::Client) => Ok(()),
            Err(_) => {
                let within = DRAIN_TIMEOUT.as_millis();
                let lost = "the input ended, and what was under way was not answered within";
                print_error(format!("mgp: {lost} {within} ms"));
                Ok(())
            }
        },
    }
}

impl Bridge {
    fn new(socket: UnixStream, output: File) -> Self {
        Self {
            connection: Mutex::new(KernelConnection {
                socket,
                generation: Some(0),
                client_left: false,
                waiting_since: None,
                waiting: Vec::new(),
            }),
            changed: Condvar::new(),
            conversation: Mutex::default(),
            output: Mutex::new(output),
        }
    }

    fn lock_connection(&self) -> MutexGuard<'_, KernelConnection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_conversation(&self) -> MutexGuard<'_, ConversationState> {
        self.conversation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// From the client to the kernel, until the end of the input.
    fn client_to_kernel(&self, input: File) {
        let mut input = LineReader::new(input);
        // The kernel that received the start of an incomplete line.
        let mut begun = None;
        while let Ok(Some(batch)) = input.next_batch() {
            begun = self.write_to_kernel(&batch, begun);
        }
        let mut side = self.lock_connection();
        side.client_left = true;
        // The kernel may have closed it already.
        let _ = side.socket.shutdown(Shutdown::Write);
    }

    /// Writes a whole batch; returns the kernel that must receive the end of an open line.
    fn write_to_kernel(&self, batch: &LineBatch<'_>, begun: Option<u64>) -> Option<u64> {
        let mut rest = Cow::Borrowed(batch.bytes);
        let mut torn = batch.continues_line;
        loop {
            let mut side = self.wait_for_kernel(&rest);
            if torn && side.generation != begun {
                // Its start is lost with the previous kernel.
                let end = first_line(&rest).len();
                rest.to_mut().drain(..end);
                torn = false;
                if rest.is_empty() {
                    return begun;
                }
            }
            let text = self.record_lines(&rest, torn);
            let written = write_some(&side.socket, &text);
            if written == text.len() {
                return side.generation.filter(|_| batch.has_open_line);
            }
            // Read on: a kernel that hands over answers what it has read before it closes the connection.
            side.generation = None;
            // The next kernel gets the lines that were not written completely.
            let whole = memchr::memrchr(b'\n', &text[..written]).map_or(0, |end| end + 1);
            torn &= whole == 0;
            let unwritten = text[whole..].to_vec();
            split_lines(&unwritten).for_each(|line| self.lock_conversation().forget_line(line));
            rest = Cow::Owned(unwritten);
        }
    }

    /// The connection, once there is one.
    fn wait_for_kernel(&self, lines_that_wait: &[u8]) -> MutexGuard<'_, KernelConnection> {
        let mut side = self.lock_connection();
        if side.generation.is_none() {
            side.waiting_since.get_or_insert_with(Instant::now);
            side.waiting = ConversationState::request_ids(split_lines(lines_that_wait)).collect();
        }
        while side.generation.is_none() {
            side = self
                .changed
                .wait(side)
                .unwrap_or_else(PoisonError::into_inner);
        }
        side.waiting_since = None;
        side.waiting.clear();
        side
    }

    /// Records lines that are about to be written, except the end of a `torn` one; returns the lines to write.
    fn record_lines<'t>(&self, text: &'t [u8], torn: bool) -> Cow<'t, [u8]> {
        let mut conversation = self.lock_conversation();
        let mut remaining_text = Cow::Borrowed(text);
        let mut at = 0;
        for (nth, line) in split_lines(text).enumerate() {
            let next_lines = if torn && nth == 0 {
                Cow::Borrowed(line)
            } else {
                conversation.record_client_line(line)
            };
            if next_lines.len() != line.len() {
                let place = at..at + line.len();
                remaining_text
                    .to_mut()
                    .splice(place, next_lines.iter().copied());
            }
            at += next_lines.len();
        }
        remaining_text
    }

    /// From all kernels to the client.
    fn kernel_to_client(&self, mut reader: UnixStream, mut kernels: impl Reconnect) -> BridgeEnd {
        let mut generation = 0;
        loop {
            if let Err(ended) = self.forward_from_kernel(&reader) {
                return ended;
            }
            match self.connect_to_next_kernel(&reader, &mut kernels) {
                Err(ended) => return ended,
                Ok(next) => reader = next,
            }
            generation += 1;
            let socket = match reader.try_clone() {
                Ok(socket) => socket,
                Err(e) => return BridgeEnd::Kernel(e.into()),
            };
            let mut side = self.lock_connection();
            if side.client_left {
                return BridgeEnd::Client;
            }
            side.socket = socket;
            side.generation = Some(generation);
            side.waiting_since = None;
            self.changed.notify_all();
        }
    }

    /// Forwards the output of one kernel until it ends.
    fn forward_from_kernel(&self, reader: &UnixStream) -> Result<(), BridgeEnd> {
        let mut next_lines = LineReader::new(reader);
        let mut torn = false;
        while let Ok(Some(batch)) = next_lines.next_batch() {
            {
                let mut conversation = self.lock_conversation();
                batch
                    .lines()
                    .for_each(|line| conversation.record_kernel_line(line));
            }
            self.write_to_client(batch.bytes)?;
            torn = batch.has_open_line;
        }
        if torn {
            self.write_to_client(b"\n")
        } else {
            Ok(())
        }
    }

    /// Writes to the client.
    fn write_to_client(&self, text: &[u8]) -> Result<(), BridgeEnd> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(text).map_err(|e| {
            if e.kind() == ErrorKind::BrokenPipe {
                BridgeEnd::Client
            } else {
                BridgeEnd::Kernel(e.into())
            }
        })
    }

    /// Connects to the next kernel, and repeats the handshake.
    fn connect_to_next_kernel(
        &self,
        gone: &UnixStream,
        kernels: &mut impl Reconnect,
    ) -> Result<UnixStream, BridgeEnd> {
        let _ = gone.shutdown(Shutdown::Both);
        let mut side = self.lock_connection();
        side.generation = None;
        let client_left = side.client_left;
        drop(side);
        let lost = self.fail_in_flight()?;
        if client_left {
            // No further kernel is needed: no requests will come.
            let end = self.fail_waiting(Failure::ConnectionClosed)?;
            return Err(if lost {
                BridgeEnd::Kernel(Failure::ConnectionClosed)
            } else {
                end
            });
        }
        let Some(handshake) = self.lock_conversation().handshake() else {
            return Err(BridgeEnd::Kernel(Failure::ConnectionClosed));
        };
        let others = |line: &[u8]| {
            self.lock_conversation().record_kernel_line(line);
            // A client that is gone is detected by its reader.
            let _ = self.write_to_client(line);
        };
        let found = loop {
            let socket = match kernels.reconnect(&ReconnectWait(self)) {
                Ok(socket) => socket,
                Err(failure) => return Err(self.fail_waiting(failure)?),
            };
            match resume::replay_handshake(&socket, &handshake, others) {
                Ok(()) => break socket,
                // This kernel was lost at once.
                Err(Failure::ConnectionClosed) => {}
                Err(failure) => return Err(self.fail_waiting(failure)?),
            }
        };
        let lists = handshake
            .negotiated()
            .map(|negotiated| negotiated.lists.clone());
        for list in lists.unwrap_or_default() {
            let changed = format!("notifications/{list}/list_changed");
            self.send_to_client(jsonrpc::notification(&changed, None))?;
        }
        Ok(found)
    }

    fn send_to_client(&self, mut message: Vec<u8>) -> Result<(), BridgeEnd> {
        message.push(b'\n');
        self.write_to_client(&message)
    }

    /// Answers requests in flight with errors, and cancels the kernel's own requests.
    fn fail_in_flight(&self) -> Result<bool, BridgeEnd> {
        let mut conversation = self.lock_conversation();
        let lost = conversation.take_lost();
        let waits = conversation
            .handshake()
            .is_some_and(|it| it.pending_initialize().is_some());
        drop(conversation);
        if waits {
            self.lock_connection()
                .waiting_since
                .get_or_insert_with(Instant::now);
        }
        let why = "the kernel went away; whether this was carried out is not known";
        let any = !lost.client_requests.is_empty();
        for id in lost.client_requests {
            self.send_to_client(failure_response(&id, why, CallOutcome::Unknown))?;
        }
        for id in lost.kernel_requests {
            let reason = "the kernel went away";
            let params = format!(r#"{{"requestId":{},"reason":"{reason}"}}"#, id.as_json());
            let method = mcp::Cancelled::METHOD;
            self.send_to_client(jsonrpc::notification(method, Some(&params)))?;
        }
        Ok(any)
    }

    /// Answers waiting requests with errors. A client that is gone and waits for nothing has ended regularly.
    fn fail_waiting(&self, failure: Failure) -> Result<BridgeEnd, BridgeEnd> {
        let mut side = self.lock_connection();
        let client_left = side.client_left;
        let mut waiting = std::mem::take(&mut side.waiting);
        drop(side);
        let why = format!("this was not carried out: {failure}");
        waiting.extend(self.lock_conversation().take_pending());
        for id in &waiting {
            self.send_to_client(failure_response(id, &why, CallOutcome::NotExecuted))?;
        }
        Ok(if client_left && waiting.is_empty() {
            BridgeEnd::Client
        } else {
            BridgeEnd::Kernel(failure)
        })
    }
}

/// The error response to a lost request.
fn failure_response(id: &RequestId, why: &str, outcome: CallOutcome) -> Vec<u8> {
    let error = ErrorObject::new(INTERNAL_ERROR, why).with_data(&json!({"outcome": outcome}));
    let error = serde_json::to_string(&error).expect("an error object is always JSON");
    jsonrpc::error(id.as_json(), &error)
}

/// The first line of a text.
fn first_line(text: &[u8]) -> &[u8] {
    split_lines(text).next().unwrap_or_default()
}

/// Writes as much as possible; returns the length.
fn write_some(mut socket: &UnixStream, text: &[u8]) -> usize {
    let mut written = 0;
    while written < text.len() {
        match socket.write(&text[written..]) {
            Ok(0) => break,
            Ok(n) => written += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests;
