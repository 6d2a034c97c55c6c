//! Tests that a closed connection is freed.

#[path = "../../../testing/watched.rs"]
#[expect(dead_code, reason = "connections of agents use the rest of it")]
mod watched;

use std::sync::Arc;

use http::header::HeaderMap;
use mgp_engine::servers::spec::{CallbackAttribution, ServerLimits};
use mgp_protocol::ids::ServerId;
use mgp_transports::http::client::{Client, parse_url};
use mgp_transports::http::tls::Tls;
use mgp_transports::log::ServerLog;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use self::watched::Watched;
use super::scripted::{ReceivedEvents, ScriptedServer};
use super::{HttpWire, Link, LinkSettings, Wire};

/// A connection lost during a call and a listen is freed.
#[tokio::test(start_paused = true)]
async fn lost_link_is_freed() {
    let mut watched = Watched::begin();
    let mut it = ScriptedServer::stateless(r#"{"tools":{"listChanged":true}}"#);
    it.link.start_listening();
    it.next_message().await;
    let link = it.link.clone();
    let calling = tokio::spawn(async move { link.request("tools/call", Some("{}")).await });
    it.next_message().await;
    watched.add("the link", &it.link);
    watched.add("what hears it", &it.received);
    it.link.fail_pending_calls("its process ended");
    assert!(calling.await.unwrap().is_err());
    drop(it);
    watched.gone().await;
}

/// A server that never answers does not keep a closed connection alive.
#[tokio::test]
async fn unresponsive_server_does_not_keep_link_alive() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = parse_url(&format!("http://{}/mcp", server.local_addr().unwrap())).unwrap();
    let wire = HttpWire::new(
        Client::new(Tls::system()).into(),
        url,
        HeaderMap::new(),
        None,
    );
    let link = Link::new(
        ServerId::new("it"),
        ServerLimits::default(),
        Wire::Http(wire),
        ServerLog::new(),
        Arc::new(ReceivedEvents::default()).sink(),
        "1.0",
        LinkSettings {
            offer_mgp: false,
            offer_mcpl: true,
            attribution: CallbackAttribution::ByTurn,
            client_extensions: "{}".into(),
            audit: mgp_store::audit::AuditHandle::disabled(),
            interceptors: None,
        },
    );
    link.notify("notifications/initialized", None);
    let (mut taken, _) = server.accept().await.unwrap();
    let mut first = [0; 4];
    taken.read_exact(&mut first).await.unwrap();
    // The HTTP client keeps the TCP connection open for a while.
    let mut watched = Watched::begin();
    watched.add("the link", &link);
    link.fail_pending_calls("it was stopped");
    drop(link);
    watched.gone().await;
}
