//! Sessions over HTTP, with their streams and what they hold of tools.

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
use crate::session::{Session, SessionLimits, Sessions};
use mgp_callers::exchange::Delivery;
use mgp_callers::tool_cache::CallableTools;

const HELLO: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}"#;

async fn opened(sessions: &Arc<Sessions>) -> Arc<Session> {
    let (agent, streams) = sessions.agent(AgentId::new("agent.local"));
    let hello: mcp::Initialize<'_> = mcp::read(Some(HELLO)).unwrap();
    let caller = agent.hello(CatalogView::All, &hello).unwrap();
    agent.set_ready();
    sessions.open(caller, agent, streams).await.unwrap()
}

fn sessions(scene: &Scene, idle: Duration) -> Arc<Sessions> {
    let limits = SessionLimits {
        max: 10,
        idle,
        replay: 256,
    };
    Sessions::new(limits, scene.reception.clone())
}

/// A session that was deleted leaves nothing: not its replay buffer, which a streamed answer filled, nor
/// its clock, nor what it holds of tools, nor the question its client never answered.
#[tokio::test(start_paused = true)]
async fn a_deleted_session_leaves_nothing() {
    let scene = Scene::new().await;
    let sessions = sessions(&scene, Duration::from_secs(1800));
    let mut watched = Watched::begin();
    let session = opened(&sessions).await;
    let id = RequestId::from_json("1").unwrap();
    let lane = session.streams.lane();
    let exchange = session.agent.open(&id, Some(lane)).unwrap();
    exchange.send(Bytes::from(vec![b'x'; 500 << 10]), Delivery::Reliable);
    let mut stream = session.standing(session.streams.open(lane, false));
    while stream.next().await.unwrap().len() < 500 << 10 {}
    session
        .streams
        .finish(lane, Bytes::from(vec![b'y'; 500 << 10]));
    session.agent.done(&id);
    drop(stream);
    let held = session
        .agent
        .start_tool_cache(Budget::default(), scene.reception.agents.get_cell());
    let outside = CallableTools {
        pinned: Vec::new(),
        there: Box::new(|_| true),
    };
    held.unwrap().held(outside).await.unwrap();
    let (agent, outside) = (session.agent.clone(), session.agent.outside());
    tokio::spawn(async move {
        let asked = agent.ask(&outside, None, "elicitation/create", Some("{}"));
        let _ = asked.await;
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
    assert!(sessions.is_empty() && scene.reception.directory.is_empty());
}

/// Nor does one that nobody used, so that it ended by itself.
#[tokio::test(start_paused = true)]
async fn a_session_that_idled_out_leaves_nothing() {
    let scene = Scene::new().await;
    let sessions = sessions(&scene, Duration::ZERO);
    let mut watched = Watched::begin();
    let session = opened(&sessions).await;
    watched.add("the session", &session);
    watched.add("its agent", &session.agent);
    drop(session);
    watched.gone().await;
    assert!(sessions.is_empty() && scene.reception.directory.is_empty());
}
