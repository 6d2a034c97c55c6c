use std::sync::Mutex;

use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp;
use mgp_transports::lines::{self, QueueLimits};
use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex};

use super::budget::StreamBudgets;
use super::*;
use crate::agent::supervisor::AgentsActor;
use crate::in_flight_call::ReplyPath;

/// A stream to a reader on a line connection.
struct Scene {
    stream: CallStreamHandle,
    call: Arc<InFlightCall>,
    reader: BufReader<DuplexStream>,
    server: Arc<Mutex<Vec<CallStreamNotice>>>,
    agents: ActorRef<()>,
}

impl Scene {
    async fn new(form: ChunkForm, pipe: usize) -> Self {
        Self::queueing(QueueLimits::default(), form, pipe).await
    }

    /// A stream to a reader whose queue has these bounds.
    async fn queueing(limits: QueueLimits, form: ChunkForm, pipe: usize) -> Self {
        let (agents, _) = Actor::spawn(None, AgentsActor, ()).await.unwrap();
        let (sink, out) = lines::line_channel(limits);
        let (writer, reader) = duplex(pipe);
        task::spawn_detached("test.writer", async move {
            let _ = out.run(writer, Duration::from_secs(3600)).await;
        });
        let id = RequestId::from_json(r#""a-7""#).unwrap();
        let call = InFlightCall::with_id(id, ReplyPath::Line(sink));
        let budget = Arc::new(StreamBudgets::default()).for_agent(&AgentId::new(AgentId::LOCAL));
        let cell = agents.get_cell();
        let stream = CallStreamHandle::start(cell, &call, form, budget).unwrap();
        let server: Arc<Mutex<Vec<_>>> = Arc::default();
        let notices = server.clone();
        let sink = EventSink::new(move |notice| notices.lock().unwrap().push(notice));
        stream.begin(sink, None);
        Self {
            stream,
            call,
            reader: BufReader::new(reader),
            server,
            agents,
        }
    }

    fn chunk(&self, index: usize, text: &str) -> bool {
        let params = format!(
            r#"{{"request_id":99,"index":{index},"content":{{"type":"text","text":"{text}"}},"done":false}}"#
        );
        let chunk: Chunk<'_> = mcp::parse_params(Some(&params)).unwrap();
        self.stream.chunk(&params, &chunk)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(DEADLINE, self.reader.read_line(&mut line)).await;
        read.expect("a line comes").unwrap();
        line.trim_end().to_owned()
    }

    /// Reads the indices of the next chunks.
    async fn indices(&mut self, count: usize) -> Vec<u64> {
        let mut indices = Vec::new();
        for _ in 0..count {
            let line: serde_json::Value = serde_json::from_str(&self.line().await).unwrap();
            indices.push(line["params"]["index"].as_u64().unwrap());
        }
        indices
    }

    /// Waits until this is the last notice sent to the server.
    async fn wait_for_notice(&self, notice: CallStreamNotice) {
        let is_last = || self.server.lock().unwrap().last() == Some(&notice);
        let waits = async {
            while !is_last() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let notified = timeout(DEADLINE, waits).await;
        assert!(notified.is_ok(), "{:?}", self.server.lock().unwrap());
    }
}

/// Deadline for tests with a paused clock: reached only when nothing else can happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// MGP-158: the reader's own id in the place of the kernel's, every other byte as the server sent it.
#[tokio::test]
async fn chunk_carries_the_readers_request_id() {
    let mut it = Scene::new(ChunkForm::Chunk, 64 << 10).await;
    assert!(it.chunk(0, "a"));
    assert_eq!(
        it.line().await,
        r#"{"jsonrpc":"2.0","method":"notifications/mgp.stream.chunk","params":{"request_id":"a-7","index":0,"content":{"type":"text","text":"a"},"done":false}}"#
    );
}

/// A-33: a client without MGP reads a chunk as progress.
#[tokio::test]
async fn plain_client_receives_chunks_as_progress() {
    let mut it = Scene::new(ChunkForm::Progress("\"t\"".into()), 64 << 10).await;
    assert!(it.chunk(0, "a") && it.chunk(1, "b"));
    for (number, text) in [(1, "a"), (2, "b")] {
        let params = format!(r#"{{"progressToken":"t","progress":{number},"message":"{text}"}}"#);
        let frame = jsonrpc_frame("notifications/progress", &params);
        assert_eq!(it.line().await, frame);
    }
}

fn jsonrpc_frame(method: &str, params: &str) -> String {
    let frame = mgp_protocol::jsonrpc::notification(method, Some(params));
    String::from_utf8(frame).unwrap()
}

/// A reader that does not read blocks nobody; the buffer is bounded, and the server is notified.
#[tokio::test(start_paused = true)]
async fn sleeping_reader_buffers_half_a_megabyte_and_blocks_nobody() {
    let mut it = Scene::new(ChunkForm::Chunk, 1 << 10).await;
    let text = "x".repeat(1 << 10);
    let mut lost = 0;
    for index in 0..2000 {
        lost += usize::from(!it.chunk(index, &text));
        tokio::task::yield_now().await;
    }
    assert!(it.stream.shared.waiting.in_use_amount() <= BUFFERED_BYTES_MAX as u64);
    assert!(lost > 1000, "{lost}");
    it.stream.finish().await;
    let notices = it.server.lock().unwrap().clone();
    assert!(
        matches!(
            notices[..],
            [CallStreamNotice::Pace(1..), CallStreamNotice::Pace(0)]
        ),
        "{notices:?}"
    );
    let first = it.line().await;
    assert!(first.contains(r#""index":0,"#), "{first}");
}

/// Later drafts, 12.8: a paused server resumes when its reader did, even if nothing is buffered and all
/// chunks are in delivery.
#[tokio::test(start_paused = true)]
async fn paused_server_is_resumed_when_all_was_read() {
    let mut it = Scene::new(ChunkForm::Chunk, 1 << 10).await;
    let text = "x".repeat(120 << 10);
    for index in 0..4 {
        assert!(it.chunk(index, &text));
    }
    it.wait_for_notice(CallStreamNotice::Pace(0)).await;
    assert_eq!(it.indices(4).await, [0, 1, 2, 3]);
    let unpaced = mgp_protocol::mgp::stream::UNPACED;
    it.wait_for_notice(CallStreamNotice::Pace(unpaced)).await;
    assert!(it.chunk(4, "on"));
    assert_eq!(it.indices(1).await, [4]);
}

/// A reader that set its own pace, and is behind, gets the buffered chunks as it reads.
#[tokio::test(start_paused = true)]
async fn reader_with_a_pace_gets_all_buffered_chunks() {
    let mut it = Scene::new(ChunkForm::Chunk, 1 << 10).await;
    it.stream.set_pace(100_000);
    for index in 0..200 {
        assert!(it.chunk(index, &"x".repeat(100)));
    }
    assert_eq!(it.indices(200).await, (0..200).collect::<Vec<_>>());
}

/// MGP-159: chunks that did not fit into a full queue are sent later, in the order of their index.
#[tokio::test(start_paused = true)]
async fn chunks_rejected_by_a_full_queue_keep_their_order() {
    let limits = QueueLimits {
        frames: 2,
        ..QueueLimits::default()
    };
    let mut it = Scene::queueing(limits, ChunkForm::Chunk, 16).await;
    // All of them become due with the last one.
    for index in [1, 2, 3, 4, 5, 6, 0] {
        assert!(it.chunk(index, "x"));
    }
    assert_eq!(it.indices(7).await, [0, 1, 2, 3, 4, 5, 6]);
}

/// A chunk is accepted as soon as those before it were read.
#[tokio::test(start_paused = true)]
async fn reading_frees_capacity_for_a_large_chunk() {
    let mut it = Scene::new(ChunkForm::Chunk, 1 << 20).await;
    assert!(it.chunk(0, &"x".repeat(200 << 10)));
    it.indices(1).await;
    assert!(it.chunk(1, &"x".repeat(400 << 10)));
    assert_eq!(it.indices(1).await, [1]);
}

/// Later drafts, 12.9: a stored chunk is sent again.
#[tokio::test]
async fn missing_chunk_is_sent_again() {
    let mut it = Scene::new(ChunkForm::Chunk, 64 << 10).await;
    assert!(it.chunk(0, "a"));
    let first = it.line().await;
    it.stream.report_gap(vec![0]);
    assert_eq!(it.line().await, first);
    let so_far = it.stream.partial_result().await.unwrap();
    assert_eq!(&*so_far.0, r#"{"content":[{"type":"text","text":"a"}]}"#);
}

/// A stopped stream frees all its memory.
#[tokio::test]
async fn stopped_stream_frees_its_memory() {
    let mut it = Scene::new(ChunkForm::Chunk, 64 << 10).await;
    assert!(it.chunk(0, "a"));
    it.line().await;
    it.stream.finish().await;
    it.stream.stop();
    let call = Arc::downgrade(&it.call);
    let budget = Arc::downgrade(&it.stream.shared.budget);
    let agents = it.agents.clone();
    drop(it);
    for _ in 0..1000 {
        if call.strong_count() + budget.strong_count() == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!((call.strong_count(), budget.strong_count()), (0, 0));
    agents.stop(None);
}
