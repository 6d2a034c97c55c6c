//! An outgoing request to a server: its edits and the HTTP headers that mirror it.

use mgp_engine::callers::request_ids::WireId;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::Splice;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mcp::request_headers::{self, ParamHeader};
use serde_json::value::RawValue;

use super::streams::{RequestedStream, StreamOptions};
use crate::link::{FinalCheck, Link, MetadataHeaders};
use mgp_callers::request::Request;

/// A request to be sent to a server.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The caller's policy check, run again right before sending.
    pub final_check: Option<&'a dyn FinalCheck>,
    /// The called tool, if any.
    pub tool: Option<&'a CatalogTool>,
    /// The method.
    pub method: &'a str,
    /// The params as the client sent them.
    pub params: &'a str,
    /// True if the params may contain MGP members (see `trace.rs`).
    pub may_hold_mgp: bool,
    /// Members to add for a server that speaks MCPL.
    pub mcpl: Option<&'a McplMembers>,
    /// The part of `params` with the name, and the server's own name to replace it.
    pub edit: (&'a str, &'a str),
    /// The client's progress token, borrowed from `params`.
    pub token: Option<&'a RawValue>,
    /// Requested chunks or progress.
    pub stream_options: Option<&'a StreamOptions>,
    /// The HTTP headers that mirror the body for stateless servers.
    pub header_params: HeaderParams<'a>,
}

/// Members of the params of `tools/call` for a server that speaks MCPL, as JSON text (MCPL §7.7, §8.4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McplMembers {
    /// `scope`.
    pub scope: Option<String>,
    /// `state`.
    pub state: Option<String>,
    /// `checkpoint`.
    pub checkpoint: Option<String>,
}

impl McplMembers {
    /// The names of these members. Members of these names from a caller are not sent to servers that speak MCPL.
    pub const NAMES: [&'static str; 3] = ["scope", "state", "checkpoint"];
}

/// The HTTP headers that mirror the body (MCP 2026-07-28, request metadata).
#[derive(Debug, Clone, Copy, Default)]
pub struct HeaderParams<'a> {
    /// The server's own name of the tool, prompt or resource.
    pub name: Option<&'a str>,
    /// The arguments that the tool wants mirrored.
    pub arguments: Option<(&'a [ParamHeader], &'a str)>,
}

impl<'a> HeaderParams<'a> {
    /// Mirrors only the name.
    #[must_use]
    pub fn with_name(name: &'a str) -> Self {
        Self {
            name: Some(name),
            arguments: None,
        }
    }
}

impl<'a> Outgoing<'a> {
    /// The chunks and progress to request from this server.
    pub(super) fn requested_stream<'r>(
        &self,
        request: &'r Request,
        link: &Link,
        family: ProtocolFamily,
    ) -> RequestedStream<'r> {
        let requested = self
            .stream_options
            .map(|options| options.for_server(request, link, family));
        requested.unwrap_or_default()
    }

    /// The params with the server's own name, and, given the call's id, its progress token.
    pub(super) fn splice_params(&self, id: Option<WireId>) -> Splice<'a> {
        let mut splice = Splice::new(self.params);
        let (part, json) = self.edit;
        if part != json {
            splice.replace(part, json);
        }
        if let (Some(token), Some(id)) = (self.token, id) {
            splice.replace(token.get(), id.to_string());
        }
        splice
    }

    /// Adds the MCPL members to the params of a tool call, if the server speaks MCPL.
    pub(super) fn add_mcpl_members(
        &self,
        link: &Link,
        family: ProtocolFamily,
        splice: &mut Splice<'_>,
    ) {
        let Some(ours) = self
            .mcpl
            .filter(|_| family == ProtocolFamily::Legacy && link.mcpl().is_some())
        else {
            return;
        };
        let ours = [&ours.scope, &ours.state, &ours.checkpoint];
        let ours = McplMembers::NAMES.iter().zip(ours);
        let ours = ours.filter_map(|(name, json)| Some((*name, json.as_deref()?)));
        splice.insert_members(self.params, &ours.collect::<Vec<_>>());
    }

    /// The headers for the arguments that a stateless server wants mirrored.
    pub(super) fn argument_headers(&self, family: ProtocolFamily) -> Vec<(String, String)> {
        match (family, self.header_params.arguments) {
            (ProtocolFamily::Stateless, Some((headers, arguments))) if !headers.is_empty() => {
                let headers = request_headers::param_headers(headers, Some(arguments)).into_iter();
                headers
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn metadata_headers<'m>(&self, params: &'m [(String, String)]) -> MetadataHeaders<'m>
    where
        'a: 'm,
    {
        MetadataHeaders {
            method: self.method,
            name: self.header_params.name,
            params,
        }
    }
}

/// Renders a request frame; the payload is copied once.
pub(super) fn render_frame(id: WireId, method: &str, params: Splice<'_>) -> Vec<u8> {
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
