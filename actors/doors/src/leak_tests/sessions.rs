//! Tests of HTTP sessions, with their streams and tool caches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::tools::Budget;

use super::scene::Scene;
use super::watched::Watched;
use crate::session::{Session, SessionLimits, SessionMsg, Sessions};
use mgp_callers::tool_cache::{CallableTools, ToolCacheMsg};
use mgp_callers::{Credential, Delivery};
use mgp_runtime::Queued;
use ractor::ActorCell;

const HELLO: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}"#;

async fn opened(sessions: &Arc<Sessions>) -> Arc<Session> {
    let (agent, streams) = sessions.new_agent(&Credential::permanent(AgentId::new("agent.local")));
    let hello: mcp::Initialize<'_> = mcp::parse_params(Some(HELLO)).unwrap();
    let caller = agent.initialize(CatalogView::All, &hello, None).unwrap();
    agent.set_ready();
    sessions.open(caller, (agent, streams), None).await.unwrap()
}

fn sessions(scene: &Scene, idle: Duration) -> Arc<Sessions> {
    let limits = SessionLimits {
        max: 10,
        idle,
        replay: 256,
    };
    Sessions::new(limits, scene.context.clone())
}

/// A deleted session is freed: its replay buffer, which a streamed answer filled, its timer, its tool
/// cache, and its open callback.
#[tokio::test(start_paused = true)]
async fn deleted_session_is_freed() {
    let scene = Scene::new().await;
    let sessions = sessions(&scene, Duration::from_secs(1800));
    let mut watched = Watched::begin();
    let session = opened(&sessions).await;
    let id = RequestId::from_json("1").unwrap();
    let lane = session.streams.lane();
    let exchange = session.agent.open_request(&id, Some(lane)).unwrap();
    exchange.send(Bytes::from(vec![b'x'; 500 << 10]), Delivery::Reliable);
    let mut stream = session.open_stream(session.streams.open(lane, false));
    while stream.next().await.unwrap().len() < 500 << 10 {}
    session
        .streams
        .finish(lane, Bytes::from(vec![b'y'; 500 << 10]));
    session.agent.finish_request(&id);
    drop(stream);
    let held = session
        .agent
        .start_tool_cache(Budget::default(), scene.context.agents.get_cell());
    let outside = CallableTools {
        pinned: Vec::new(),
        exists: Box::new(|_| true),
    };
    held.unwrap().read(outside).await.unwrap();
    let (agent, outside) = (session.agent.clone(), session.agent.new_kernel_call());
    tokio::spawn(async move {
        let callback = agent.send_callback(&outside, None, "elicitation/create", Some("{}"));
        let _ = callback.await;
    });
    tokio::task::yield_now().await;
    watched.add("the session", &session);
    watched.add("its agent", &session.agent);
    watched.add("its caller", &session.caller);
    watched.add("its streams", &session.streams);
    watched.add("its exchange", &exchange);
    let id = session.id.clone();
    drop((session, exchange));
    sessions.close(&id);
    watched.gone().await;
    assert!(sessions.is_empty() && scene.context.directory.is_empty());
}

/// An unused session that ended by its idle timeout is freed.
#[tokio::test(start_paused = true)]
async fn idle_session_is_freed_after_its_timeout() {
    let scene = Scene::new().await;
    let sessions = sessions(&scene, Duration::ZERO);
    let mut watched = Watched::begin();
    let session = opened(&sessions).await;
    watched.add("the session", &session);
    watched.add("its agent", &session.agent);
    drop(session);
    watched.gone().await;
    assert!(sessions.is_empty() && scene.context.directory.is_empty());
}

/// The only child of the agents' supervisor with these messages.
fn child<M: Send + 'static>(scene: &Scene) -> ActorCell {
    let mut children = scene.context.agents.get_cell().get_children();
    children.retain(|child| child.is_message_type_of::<Queued<M>>() == Some(true));
    assert_eq!(children.len(), 1);
    children.remove(0)
}

/// A session whose actor panics has ended: its id is unknown, its call is cancelled, its stream has ended,
/// its callback fails. Another session is not affected.
#[tokio::test(start_paused = true)]
async fn panicking_session_ends_and_is_freed() {
    let scene = Scene::new().await;
    let sessions = sessions(&scene, Duration::from_secs(1800));
    let mut watched = Watched::begin();
    let session = opened(&sessions).await;
    let actor = child::<SessionMsg>(&scene);
    let other = opened(&sessions).await;
    let id = RequestId::from_json("1").unwrap();
    let lane = session.streams.lane();
    let exchange = session.agent.open_request(&id, Some(lane)).unwrap();
    let mut stream = session.open_stream(session.streams.open(lane, false));
    let (agent, outside) = (session.agent.clone(), session.agent.new_kernel_call());
    let asking = tokio::spawn(async move {
        let callback = agent.send_callback(&outside, None, "elicitation/create", Some("{}"));
        callback.await.is_err()
    });
    tokio::task::yield_now().await;
    watched.add("the session", &session);
    watched.add("its agent", &session.agent);
    watched.add("its exchange", &exchange);
    actor.send_message(Queued::<SessionMsg>::panic()).unwrap();
    let failed = async {
        exchange.wait_until_cancelled().await;
        while stream.next().await.is_some() {}
        asking.await.unwrap()
    };
    let failed = tokio::time::timeout(Duration::from_secs(60), failed).await;
    assert_eq!(failed, Ok(true), "the question fails");
    assert!(sessions.get(session.id.as_str()).is_none());
    assert!(sessions.get(other.id.as_str()).is_some());
    sessions.close(&other.id);
    drop((session, other, exchange, stream));
    watched.gone().await;
    assert!(sessions.is_empty() && scene.context.directory.is_empty());
}

/// A panicking tool cache fails its request; the next request of the session starts an empty cache.
#[tokio::test(start_paused = true)]
async fn panicking_tool_cache_is_restarted_at_its_next_use() {
    let scene = Scene::new().await;
    let sessions = sessions(&scene, Duration::from_secs(1800));
    let session = opened(&sessions).await;
    let agents = scene.context.agents.get_cell();
    let cache = || {
        let cache = session
            .agent
            .start_tool_cache(Budget::default(), agents.clone());
        cache.unwrap()
    };
    let outside = || CallableTools {
        pinned: Vec::new(),
        exists: Box::new(|_| true),
    };
    let first = cache();
    first.read(outside()).await.unwrap();
    let actor = child::<ToolCacheMsg>(&scene);
    actor.send_message(Queued::<ToolCacheMsg>::panic()).unwrap();
    let failed = tokio::time::timeout(Duration::from_secs(60), first.read(outside())).await;
    assert!(failed.expect("an answer comes").is_err());
    cache().read(outside()).await.unwrap();
    assert!(sessions.get(session.id.as_str()).is_some());
    let id = session.id.clone();
    sessions.close(&id);
    let ended = session
        .agent
        .start_tool_cache(Budget::default(), agents.clone());
    assert!(ended.is_none(), "the session has ended");
}
