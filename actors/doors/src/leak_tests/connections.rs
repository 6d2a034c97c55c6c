//! Tests of line connections and listeners.

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mcp::subscriptions::Filter;
use mgp_protocol::mgp::negotiation::PLAIN;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf,
    WriteHalf, duplex, split,
};

use super::scene::Scene;
use super::watched::Watched;
use crate::connection;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Caller, CallerSession, Request};
use mgp_callers::{CallRound, CallRounds, InFlightCall, Outlet, ReplyPath, agent};
use mgp_calls::listener;
use mgp_runtime::trace::Trace;

/// A line connection that is closed during a call is freed.
#[tokio::test(start_paused = true)]
async fn closed_connection_is_freed() {
    let scene = Scene::new().await;
    let mut watched = Watched::begin();
    let (mut lines, mut writer) = joined(&scene, "agent.local").await;
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow"}}"#;
    writer
        .write_all(format!("{call}\n").as_bytes())
        .await
        .unwrap();
    // The call has started when a later message is answered.
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    writer
        .write_all(format!("{ping}\n").as_bytes())
        .await
        .unwrap();
    lines.next_line().await.unwrap().unwrap();
    let callers = std::mem::take(&mut *scene.routes.came.lock().unwrap());
    assert_eq!(callers.len(), 2, "the welcome and the call");
    for (caller, agent) in callers {
        watched.add_weak("the caller", caller);
        watched.add_weak("the agent", agent);
    }
    drop((lines, writer));
    watched.gone().await;
    assert!(scene.context.directory.is_empty());
}

/// Opens a line connection of an agent that has finished its handshake.
async fn joined(
    scene: &Scene,
    agent: &str,
) -> (
    Lines<BufReader<ReadHalf<DuplexStream>>>,
    WriteHalf<DuplexStream>,
) {
    let (near, far) = duplex(1 << 16);
    let (reader, writer) = split(far);
    tokio::spawn(connection::serve(
        scene.context.clone(),
        (AgentId::new(agent), Default::default()),
        false,
        Some(CatalogView::All),
        connection::ConnectionEnd::default(),
        reader,
        writer,
    ));
    let (reader, mut writer) = split(near);
    let mut lines = BufReader::new(reader).lines();
    let hello = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
        r#""capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
        "\n",
    );
    writer.write_all(hello.as_bytes()).await.unwrap();
    assert_eq!(next(&mut lines).await["result"], serde_json::json!({}));
    (lines, writer)
}

/// Reads the next line, within a minute of the test clock.
async fn next(lines: &mut Lines<impl AsyncBufRead + Unpin>) -> serde_json::Value {
    let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line());
    let line = line.await.expect("an answer comes").unwrap();
    serde_json::from_str(&line.expect("the connection lives")).unwrap()
}

/// Requests that panic, at once or later, in a session or stateless, are answered with an error under their
/// ids; their connection stays open and is freed later.
#[tokio::test(start_paused = true)]
async fn panicking_request_is_answered_and_its_connection_stays_open() {
    let scene = Scene::new().await;
    let mut watched = Watched::begin();
    let (mut lines, mut writer) = joined(&scene, "agent.local").await;
    let meta = concat!(
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}},"#,
    );
    let note = r#"{"jsonrpc":"2.0","method":"notifications/panics"}"#;
    writer
        .write_all(format!("{note}\n").as_bytes())
        .await
        .unwrap();
    for (when, meta) in [
        ("at once", ""),
        ("later", ""),
        // The same id again: the earlier request is no longer in flight.
        ("later", ""),
        ("at once", meta),
        ("later", meta),
    ] {
        let params = format!(r#"{{{meta}"name":"panics {when}"}}"#);
        let call = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{params}}}"#);
        writer
            .write_all(format!("{call}\n").as_bytes())
            .await
            .unwrap();
        let answer = next(&mut lines).await;
        assert_eq!(answer["id"], 2, "{when} {meta}: {answer}");
        assert_eq!(answer["error"]["code"], -32603, "{when} {meta}: {answer}");
    }
    let ended = r#"{"jsonrpc":"2.0","id":3,"method":"mgp/door/open"}"#;
    writer
        .write_all(format!("{ended}\n").as_bytes())
        .await
        .unwrap();
    assert_eq!(next(&mut lines).await["id"], 3);
    for (caller, agent) in std::mem::take(&mut *scene.routes.came.lock().unwrap()) {
        if caller.strong_count() > 0 {
            watched.add_weak("the caller", caller);
        }
        if agent.strong_count() > 0 {
            watched.add_weak("the agent", agent);
        }
    }
    drop((lines, writer));
    watched.gone().await;
    assert!(scene.context.directory.is_empty());
}

/// Creates a listening request of a stateless client.
fn listening() -> Request {
    let round = CallRound {
        id: RequestId::from_json("1").unwrap(),
        outlet: Some(Outlet::Stream(tokio::sync::mpsc::channel(8).0)),
        token: None,
        capabilities: ClientCapabilities::default(),
        log_level: None::<LogLevel>,
        answered_at: None,
    };
    let agent = AgentId::new("agent.local");
    Request {
        caller: Arc::new(Caller {
            connection: agent::shared_connection(&agent, &CatalogView::All),
            agent,
            groups: Default::default(),
            operator: false,
            view: CatalogView::All,
            version: Version::STATELESS,
            capabilities: ClientCapabilities::default(),
            extensions: None,
            mgp: PLAIN,
            mcpl: None,
            session: CallerSession::Stateless,
            address: None,
            activity: Arc::default(),
        }),
        call: InFlightCall::new(ReplyPath::Rounds(Box::new(CallRounds::new(round, false)))),
        method: ByteString::from_static("subscriptions/listen"),
        params: None,
        trace: Trace::from_params(None, None),
    }
}

/// An ended listener is freed, and late requests store nothing.
#[tokio::test(start_paused = true)]
async fn ended_listener_is_freed() {
    let scene = Scene::new().await;
    let mut watched = Watched::begin();
    let request = listening();
    let agent = Agent::new_listener(
        &request.caller,
        &request.call,
        &Filter::default(),
        "{}",
        Vec::new(),
    );
    let (agents, directory) = (&scene.context.agents, &scene.context.directory);
    let listener = listener::start(
        agents,
        directory,
        (&scene.subscriptions, &scene.events),
        &agent,
    );
    let listener = listener.await.unwrap();
    let (connection, server) = (agent.connection, ServerId::new("it"));
    let subscribe = || {
        let uri = "a:b".to_owned();
        scene
            .subscriptions
            .subscribe(connection, server.clone(), uri)
    };
    subscribe().await.unwrap();
    watched.add("the agent", &agent);
    watched.add("its caller", &request.caller);
    watched.add("its exchange", &request.call);
    drop((listener, agent, request));
    watched.gone().await;
    assert!(directory.is_empty());
    assert!(subscribe().await.is_err());
}

/// A line connection is closed when its actor fails during a call, and when the disconnect handler of its
/// agent panics; another connection continues. The actor receives no messages, so it can only be killed.
#[tokio::test(start_paused = true)]
async fn failed_connection_is_closed_and_freed() {
    let scene = Scene::new().await;
    let directory = &scene.context.directory;
    let mut watched = Watched::begin();
    let (mut lost, mut lost_writer) = joined(&scene, "agent.lost").await;
    let actor = scene.context.agents.get_cell().get_children().remove(0);
    let (mut broken, mut broken_writer) = joined(&scene, "agent.broken").await;
    let (mut stays, mut stays_writer) = joined(&scene, "agent.stays").await;
    let call =
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"slow\"}}\n";
    lost_writer.write_all(call.as_bytes()).await.unwrap();
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}\n";
    lost_writer.write_all(ping.as_bytes()).await.unwrap();
    assert_eq!(next(&mut lost).await["id"], 3, "the call has begun");
    for (caller, agent) in std::mem::take(&mut *scene.routes.came.lock().unwrap()) {
        watched.add_weak("the caller", caller);
        watched.add_weak("the agent", agent);
    }
    actor.kill();
    broken_writer.shutdown().await.unwrap();
    for lines in [&mut lost, &mut broken] {
        let end = tokio::time::timeout(Duration::from_secs(60), lines.next_line());
        assert_eq!(end.await.expect("an end comes").unwrap(), None);
    }
    stays_writer.write_all(ping.as_bytes()).await.unwrap();
    assert_eq!(next(&mut stays).await["id"], 3);
    assert_eq!(directory.len(), 1);
    drop((
        stays,
        stays_writer,
        lost,
        lost_writer,
        broken,
        broken_writer,
    ));
    watched.gone().await;
    assert!(directory.is_empty());
}

/// A client learns that its listener failed and receives nothing more. The actor receives no messages, so
/// it can only be killed.
#[tokio::test(start_paused = true)]
async fn client_is_notified_of_its_failed_listener() {
    let scene = Scene::new().await;
    let request = listening();
    let agent = Agent::new_listener(
        &request.caller,
        &request.call,
        &Filter::default(),
        "{}",
        Vec::new(),
    );
    let (agents, directory) = (&scene.context.agents, &scene.context.directory);
    let listener = listener::start(
        agents,
        directory,
        (&scene.subscriptions, &scene.events),
        &agent,
    );
    let mut listener = listener.await.unwrap();
    let subscribe = || {
        let (server, uri) = (ServerId::new("it"), "a:b".to_owned());
        scene.subscriptions.subscribe(agent.connection, server, uri)
    };
    subscribe().await.unwrap();
    agents.get_cell().get_children().remove(0).kill();
    let ended = tokio::time::timeout(Duration::from_secs(60), listener.wait_until_lost());
    ended.await.expect("it is told");
    assert!(directory.is_empty());
    assert!(subscribe().await.is_err());
}
