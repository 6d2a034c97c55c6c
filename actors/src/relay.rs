//! The data plane: finds the server of a request, checks, calls, relays.
//!
//! Reads published snapshots only. Payloads stay the text they came as; what must change (a name, a
//! URI, a progress token) is spliced.

mod calls;
mod checks;
mod subscribing;
mod welcome;

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::catalog::{Kind, View};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::Splice;
use mgp_sync::snapshot::Snapshot;
use serde_json::value::RawValue;

use crate::catalog::Shown;
use crate::directory::Directory;
use crate::link::{Call, Link, Mirror};
use crate::request::{Outcome, Request};
use crate::server::ServerTable;
use crate::subscriptions::SubscriptionsHandle;

/// What answering needs: published state, and the ways to those who own it.
#[derive(Debug)]
pub struct Relay {
    /// What is offered right now.
    pub shown: Arc<Snapshot<Shown>>,
    /// All servers.
    pub servers: Arc<ServerTable>,
    /// Who wants to hear about which resource.
    pub subscriptions: SubscriptionsHandle,
    /// Who is connected.
    pub directory: Arc<Directory>,
    /// Version of this program.
    pub version: String,
}

impl Relay {
    /// `tools/list` and its three sisters: bytes that were made when the catalog was published.
    ///
    /// # Errors
    /// [`Refusal::BadCursor`], [`Refusal::BadParams`].
    pub fn list(&self, request: &Request, kind: Kind) -> Outcome {
        let listing: mcp::Listing<'_> = mcp::read(request.params.as_deref())?;
        self.shown
            .load()
            .catalog
            .page(&request.caller.view, kind, listing.cursor.as_deref())
            .map_err(|_| Refusal::BadCursor)
    }

    /// Calls a server; once more over a new connection when the first was gone before the server
    /// had looked at the request.
    async fn forward(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        match self.forward_once(request, outgoing).await {
            Err(Refusal::NotReady {
                retry_after_ms: Some(0),
                ..
            }) => self.forward_once(request, outgoing).await,
            outcome => outcome,
        }
    }

    async fn forward_once(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        let Outgoing {
            server,
            method,
            params,
            edit: (part, json),
            token,
        } = outgoing;
        let link = self.link(request, server).await?;
        let call = Call {
            caller: Some(&request.caller),
            exchange: &request.exchange,
            token: token.map(RawValue::get),
            era: link.era(request.caller.version.era()),
            mirror: Mirror {
                method,
                name: None,
                params: &[],
            },
        };
        link.call(call, |id| {
            let mut splice = Splice::new(params);
            if part != json {
                splice.replace(part, json);
            }
            if let Some(token) = token {
                splice.replace(token.get(), id.to_string());
            }
            frame(id, method, splice)
        })
        .await
    }

    async fn link(&self, request: &Request, server: &ServerId) -> Result<Arc<Link>, Refusal> {
        let servers = self.servers.load();
        let handle = servers
            .get(server)
            .ok_or_else(|| Refusal::UnknownServer(server.to_string()))?;
        handle.connection(&request.exchange).await
    }

    /// The servers an agent with this view may reach, connected right now.
    fn links(&self, view: &View) -> Vec<Arc<Link>> {
        let servers = self.servers.load();
        match view {
            View::All => servers.values().filter_map(|s| s.link()).collect(),
            View::One(id) => servers.get(id).and_then(|s| s.link()).into_iter().collect(),
        }
    }
}

/// A request on its way to a server.
#[derive(Debug, Clone, Copy)]
struct Outgoing<'a> {
    server: &'a ServerId,
    method: &'a str,
    params: &'a str,
    /// The part of `params` that names what is asked for, and the server's own name for it.
    edit: (&'a str, &'a str),
    /// The client's progress token, borrowed from `params`.
    token: Option<&'a RawValue>,
}

/// Writes a request frame; the payload is copied once.
fn frame(id: u64, method: &str, params: Splice<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.size());
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(br#","method":""#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    params.append_to(&mut out);
    out.push(b'}');
    out
}

/// The client's progress token, borrowed from its params.
#[must_use]
pub fn progress_token(params: &str) -> Option<&RawValue> {
    let with: mcp::WithMeta<'_> = serde_json::from_str(params).ok()?;
    token_in(with.meta)
}

fn token_in(meta: Option<&RawValue>) -> Option<&RawValue> {
    let meta: mcp::Meta<'_> = serde_json::from_str(meta?.get()).ok()?;
    meta.progress_token
}

/// A JSON string's text; borrowed where it has no escapes.
fn text(raw: &RawValue, what: &str) -> Result<String, Refusal> {
    serde_json::from_str(raw.get())
        .map_err(|_| Refusal::BadParams(format!("`{what}` must be a string")))
}

fn required(request: &Request) -> Result<&str, Refusal> {
    request
        .params
        .as_deref()
        .ok_or_else(|| Refusal::BadParams("`params` is missing".into()))
}

/// The answer to a request that has nothing to say.
#[must_use]
pub fn nothing() -> Bytes {
    Bytes::from_static(b"{}")
}
