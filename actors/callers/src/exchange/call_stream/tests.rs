use std::sync::Mutex;

use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp;
use mgp_transports::lines::{self, QueueLimits};
use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex};

use super::room::StreamRooms;
use super::*;
use crate::agent::supervisor::AgentsActor;
use crate::exchange::ReplyPath;

/// A stream to a reader on a line.
struct Scene {
    stream: CallStreamHandle,
    exchange: Arc<Exchange>,
    reader: BufReader<DuplexStream>,
    server: Arc<Mutex<Vec<CallStreamNotice>>>,
    agents: ActorRef<()>,
}

impl Scene {
    async fn new(form: ChunkForm, pipe: usize) -> Self {
        let (agents, _) = Actor::spawn(None, AgentsActor, ()).await.unwrap();
        let (sink, out) = lines::sink(QueueLimits::default());
        let (writer, reader) = duplex(pipe);
        task::detached("test.writer", async move {
            let _ = out.run(writer, Duration::from_secs(3600)).await;
        });
        let id = RequestId::from_json(r#""a-7""#).unwrap();
        let exchange = Exchange::of(id, ReplyPath::Line(sink));
        let room = Arc::new(StreamRooms::default()).of(&AgentId::new(AgentId::LOCAL));
        let cell = agents.get_cell();
        let stream = CallStreamHandle::start(cell, &exchange, form, room).unwrap();
        let server: Arc<Mutex<Vec<_>>> = Arc::default();
        let told = server.clone();
        let sink = EventSink::new(move |notice| told.lock().unwrap().push(notice));
        stream.begin(sink);
        Self {
            stream,
            exchange,
            reader: BufReader::new(reader),
            server,
            agents,
        }
    }

    fn chunk(&self, index: usize, text: &str) -> bool {
        let params = format!(
            r#"{{"request_id":99,"index":{index},"content":{{"type":"text","text":"{text}"}},"done":false}}"#
        );
        let chunk: Chunk<'_> = mcp::read(Some(&params)).unwrap();
        self.stream.chunk(&params, &chunk)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }
}

/// MGP-158: the reader's own id in the place of the kernel's, every other byte as the server sent it.
#[tokio::test]
async fn a_chunk_reaches_its_reader_under_its_own_id() {
    let mut it = Scene::new(ChunkForm::Chunk, 64 << 10).await;
    assert!(it.chunk(0, "a"));
    assert_eq!(
        it.line().await,
        r#"{"jsonrpc":"2.0","method":"notifications/mgp.stream.chunk","params":{"request_id":"a-7","index":0,"content":{"type":"text","text":"a"},"done":false}}"#
    );
}

/// A-33: one chunk, in the words of a plain client.
#[tokio::test]
async fn a_plain_client_reads_chunks_as_progress() {
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

/// A reader that sleeps: nobody waits for it, what is held has a bound, and its server is told.
#[tokio::test(start_paused = true)]
async fn a_sleeping_reader_holds_half_a_megabyte_and_delays_nobody() {
    let mut it = Scene::new(ChunkForm::Chunk, 1 << 10).await;
    let text = "x".repeat(1 << 10);
    let mut lost = 0;
    for index in 0..2000 {
        lost += usize::from(!it.chunk(index, &text));
        tokio::task::yield_now().await;
    }
    assert!(it.stream.shared.waiting.taken() <= WAITING_MAX as u64);
    assert!(lost > 1000, "{lost}");
    it.stream.finish().await;
    let told = it.server.lock().unwrap().clone();
    assert!(
        matches!(
            told[..],
            [CallStreamNotice::Pace(1..), CallStreamNotice::Pace(0)]
        ),
        "{told:?}"
    );
    let first = it.line().await;
    assert!(first.contains(r#""index":0,"#), "{first}");
}

/// Later drafts, 12.9: what is kept comes again.
#[tokio::test]
async fn a_missed_chunk_comes_again() {
    let mut it = Scene::new(ChunkForm::Chunk, 64 << 10).await;
    assert!(it.chunk(0, "a"));
    let first = it.line().await;
    it.stream.gap(vec![0]);
    assert_eq!(it.line().await, first);
    let so_far = it.stream.so_far().await.unwrap();
    assert_eq!(&*so_far.0, r#"{"content":[{"type":"text","text":"a"}]}"#);
}

/// What has ended is freed, with all it held.
#[tokio::test]
async fn a_stream_that_was_stopped_leaves_nothing() {
    let mut it = Scene::new(ChunkForm::Chunk, 64 << 10).await;
    assert!(it.chunk(0, "a"));
    it.line().await;
    it.stream.finish().await;
    it.stream.stop();
    let exchange = Arc::downgrade(&it.exchange);
    let room = Arc::downgrade(&it.stream.shared.room);
    let agents = it.agents.clone();
    drop(it);
    for _ in 0..1000 {
        if exchange.strong_count() + room.strong_count() == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!((exchange.strong_count(), room.strong_count()), (0, 0));
    agents.stop(None);
}
