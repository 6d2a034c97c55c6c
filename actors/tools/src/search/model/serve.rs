//! The process that runs the model: this program, started with a hidden argument. Texts arrive on stdin, and only
//! vectors are written to stdout. It has no async runtime, because a privilege that one thread drops would remain with
//! the runtime's other threads.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use mgp_embedding::Embedder;
use mgp_platform::sandbox;

use super::frames::{EmbedReply, EmbedRequest, EmbeddingLane};

/// The limit of its private memory, in bytes. The model takes 4 MiB, each lane 6 for a batch, and each thread
/// 2 for its stack.
const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// The lowest priorities: calls precede queries, and both precede tools, for which nobody waits. 10,000 tools take five
/// minutes of a core.
const NICE_REQUESTS: i32 = 5;
const NICE_TOOLS: i32 = 19;

/// Answers requests until stdin ends.
#[must_use]
pub fn serve() -> ExitCode {
    // Before the sandbox: this reads files.
    let threads = thread_count();
    lower_priority(NICE_REQUESTS);
    let unapplied = sandbox::confine_to_compute(MEMORY_BYTES_MAX);
    let embedder = match Embedder::load(threads) {
        Ok(embedder) => embedder,
        Err(why) => {
            let _ = write_reply(&EmbedReply::Failed(why.to_string()));
            return ExitCode::FAILURE;
        }
    };
    if write_reply(&EmbedReply::Ready(unapplied)).is_err() {
        return ExitCode::FAILURE;
    }
    match dispatch_requests(&Arc::new(embedder), threads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Sends each request to the thread of its lane. That thread is idle, because the kernel waits for an answer before it
/// sends another request.
fn dispatch_requests(embedder: &Arc<Embedder>, threads: usize) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let [requests, tools] = EmbeddingLane::ALL.map(|lane| {
        let (sender, requests) = sync_channel::<Vec<String>>(1);
        let embedder = embedder.clone();
        let lane_loop = move || run_lane(lane, &embedder, threads, &requests);
        let thread = thread::Builder::new().name(lane.name().into());
        thread.spawn(lane_loop).map(|_| sender)
    });
    let (requests, tools) = (requests?, tools?);
    while let Some(EmbedRequest { lane, texts }) = EmbedRequest::read_from(&mut stdin)? {
        let sender = match lane {
            EmbeddingLane::Requests => &requests,
            EmbeddingLane::Tools => &tools,
        };
        // A thread that ends also ends the process.
        let _ = sender.send(texts);
    }
    Ok(())
}

/// Ends the process when its thread ends, even by a panic; the kernel notices and starts another process.
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
    requests: &Receiver<Vec<String>>,
) {
    let _exit_on_drop = ExitOnDrop;
    if lane == EmbeddingLane::Tools {
        lower_priority(NICE_TOOLS);
    }
    let embedder = embedder.clone_with_threads(threads);
    while let Ok(texts) = requests.recv() {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let reply = match embedder.embed_all(&texts) {
            Ok(vectors) => EmbedReply::Vectors(lane, vectors),
            Err(why) => EmbedReply::Failed(why.to_string()),
        };
        if write_reply(&reply).is_err() {
            return;
        }
    }
}

/// Sets the priority of this thread and of those it starts; disk access follows it. If that fails, the thread runs at
/// normal priority.
fn lower_priority(nice: i32) {
    let _ = rustix::process::setpriority_process(None, nice);
}

fn write_reply(reply: &EmbedReply) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&reply.encode())?;
    out.flush()
}

/// Half of the cores: the other half carries calls.
fn thread_count() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}
