//! What of all tools stands in an agent's list (MGP §16.3): all, or what it takes to find them.

use std::collections::BTreeSet;

use bytes::Bytes;
use mgp_engine::catalog::Kind;
use mgp_engine::exposure::Exposure;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::tools::meta::MetaTool;

use super::Relay;
use crate::request::Caller;

/// The kernel's own tools that there are.
const SERVED: [MetaTool; 2] = [MetaTool::Discover, MetaTool::Call];

/// What the operator wants listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposing {
    /// For every agent.
    pub exposure: Exposure,
    /// Always listed, to who may call it: a server, and its own name for the tool.
    pub pinned: BTreeSet<(ServerId, String)>,
}

impl Exposing {
    /// Whether a tool that the agent may call is in the list.
    pub(super) fn lists(&self, exposure: Exposure, server: &ServerId, tool: &str) -> bool {
        let pinned = || self.pinned.contains(&(server.clone(), tool.to_owned()));
        exposure == Exposure::All || exposure.lists(pinned(), false)
    }
}

impl Relay {
    /// How a list is cut for this caller. The operator's own are whole.
    pub(super) fn exposure(&self, caller: &Caller, kind: Kind) -> Exposure {
        match kind {
            Kind::Tools if !caller.operator => self.exposing.exposure,
            Kind::Tools | Kind::Prompts | Kind::Resources | Kind::Templates => Exposure::All,
        }
    }
}

/// The first page of a list, with the kernel's own tools before the servers'. `security` is for who
/// knows the word.
pub(super) fn with_meta(page: Bytes, exposure: Exposure, security: bool) -> Bytes {
    let meta = exposure.meta().iter();
    let meta = meta.filter(|tool| SERVED.contains(tool));
    before(
        page,
        &meta
            .map(|tool| tool.definition(security))
            .collect::<Vec<_>>(),
    )
}

/// The first page of a list of tools, with these before it.
pub(super) fn before(page: Bytes, own: &[String]) -> Bytes {
    const OPEN: &[u8] = br#"{"tools":["#;
    let (false, Some(servers)) = (own.is_empty(), page.strip_prefix(OPEN)) else {
        return page;
    };
    let comma: &[u8] = match servers.starts_with(b"]") {
        true => b"",
        false => b",",
    };
    [OPEN, own.join(",").as_bytes(), comma, servers]
        .concat()
        .into()
}
