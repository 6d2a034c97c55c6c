//! The process that runs the model: this program, started again with a hidden argument. Texts come in
//! on stdin, vectors go out on stdout, and nothing else. It has no async runtime, because a right that one
//! thread gives up would stay with the runtime's other threads.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use mgp_embedding::Embedder;

use super::frames::{EmbedReply, EmbedRequest, EmbeddingLane};
use mgp_servers::sandbox;

/// Private memory that it may have, in bytes. The model takes 4 MiB, each lane 6 for a batch, and each thread
/// 2 for its stack.
const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// The lowest priority a thread can have: calls go before queries, and both before tools that nobody waits
/// for. 10,000 tools take five minutes of a core.
const NICE_REQUESTS: i32 = 5;
const NICE_TOOLS: i32 = 19;

/// Answers until stdin ends.
#[must_use]
pub fn serve() -> ExitCode {
    // Read from files that are closed right after.
    let threads = thread_count();
    lower_priority(NICE_REQUESTS);
    let less = sandbox::confine_kernel_process(MEMORY_BYTES_MAX);
    let embedder = match Embedder::load(threads) {
        Ok(embedder) => embedder,
        Err(why) => {
            let _ = write_reply(&EmbedReply::Failed(why.to_string()));
            return ExitCode::FAILURE;
        }
    };
    if write_reply(&EmbedReply::Ready(less)).is_err() {
        return ExitCode::FAILURE;
    }
    match dispatch_requests(&Arc::new(embedder), threads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Hands each request to the thread of its lane. That thread is idle, because the kernel waits for an
/// answer before it asks again.
fn dispatch_requests(embedder: &Arc<Embedder>, threads: usize) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let [requests, tools] = EmbeddingLane::ALL.map(|lane| {
        let (ask, asked) = sync_channel::<Vec<String>>(1);
        let embedder = embedder.clone();
        let working = move || run_lane(lane, &embedder, threads, &asked);
        let named = thread::Builder::new().name(lane.name().into());
        named.spawn(working).map(|_| ask)
    });
    let (requests, tools) = (requests?, tools?);
    while let Some(EmbedRequest { lane, texts }) = EmbedRequest::read_from(&mut stdin)? {
        let ask = match lane {
            EmbeddingLane::Requests => &requests,
            EmbeddingLane::Tools => &tools,
        };
        // A thread that has ended ends the process.
        let _ = ask.send(texts);
    }
    Ok(())
}

/// Ends the process when its thread ends, even by a panic; the kernel sees that and starts another process.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        std::process::exit(1);
    }
}

fn run_lane(
    lane: EmbeddingLane,
    embedder: &Embedder,
    threads: usize,
    asked: &Receiver<Vec<String>>,
) {
    let _last = ExitOnDrop;
    if lane == EmbeddingLane::Tools {
        lower_priority(NICE_TOOLS);
    }
    let embedder = embedder.clone_with_threads(threads);
    while let Ok(texts) = asked.recv() {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let said = match embedder.embed_all(&texts) {
            Ok(vectors) => EmbedReply::Vectors(lane, vectors),
            Err(why) => EmbedReply::Failed(why.to_string()),
        };
        if write_reply(&said).is_err() {
            return;
        }
    }
}

/// Sets the priority of this thread and of those it starts; that of disk access follows. If this is
/// refused, the thread runs at normal priority.
fn lower_priority(nice: i32) {
    let _ = rustix::process::setpriority_process(None, nice);
}

fn write_reply(said: &EmbedReply) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&said.encode())?;
    out.flush()
}

/// Half of the cores: the other half carries calls.
fn thread_count() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}
