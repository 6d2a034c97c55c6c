//! The handshake of a legacy client, stored to repeat it to another kernel.

use std::collections::BTreeMap;

use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp::{self, Method, logging, resources};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest stored line, in bytes: a client's capabilities with large extensions.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Most stored subscriptions.
const SUBSCRIPTIONS_MAX: usize = 1024;
/// Bytes stored in total.
const TOTAL_BYTES_MAX: usize = 1 << 20;

/// The client's own lines of the handshake.
#[derive(Clone, Default)]
pub(super) struct Handshake {
    initialize: Option<(RequestId, Vec<u8>)>,
    negotiated: Option<NegotiatedSession>,
    initialized: Option<Vec<u8>>,
    log_level: Option<(RequestId, Vec<u8>)>,
    /// By their URI.
    subscriptions: BTreeMap<String, (RequestId, Vec<u8>)>,
    /// Bytes of the subscriptions.
    size: usize,
}

/// The parts of a kernel's answer to `initialize` that the conversation depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NegotiatedSession {
    pub(super) version: String,
    /// The lists with change notifications.
    pub(super) lists: Vec<&'static str>,
}

impl Handshake {
    /// Records a message of the client. False beyond the limits.
    pub(super) fn record(&mut self, method: &str, id: Option<&RequestId>, line: &[u8]) -> bool {
        let keep = || id.map(|id| (id.clone(), line.to_vec()));
        match method {
            mcp::Initialize::METHOD if self.negotiated.is_none() => self.initialize = keep(),
            mcp::Initialized::METHOD => self.initialized = Some(line.to_vec()),
            logging::SetLevel::METHOD => self.log_level = keep(),
            resources::Subscribe::METHOD => self.record_subscribe(line, keep()),
            resources::Unsubscribe::METHOD => self.record_unsubscribe(line),
            _ => return true,
        }
        line.len() <= LINE_BYTES_MAX
            && self.subscriptions.len() <= SUBSCRIPTIONS_MAX
            && self.size <= TOTAL_BYTES_MAX
    }

    fn record_subscribe(&mut self, line: &[u8], request: Option<(RequestId, Vec<u8>)>) {
        self.record_unsubscribe(line);
        if let (Some(uri), Some(request)) = (subscription_uri(line), request) {
            self.size += request.1.len();
            self.subscriptions.insert(uri, request);
        }
    }

    fn record_unsubscribe(&mut self, line: &[u8]) {
        let gone = subscription_uri(line).and_then(|uri| self.subscriptions.remove(&uri));
        self.size -= gone.map_or(0, |(_, line)| line.len());
    }

    /// The request was not written.
    pub(super) fn forget(&mut self, id: &RequestId) {
        if self.pending_initialize() == Some(id) {
            self.initialize = None;
        }
    }

    /// The unanswered `initialize`.
    pub(super) fn pending_initialize(&self) -> Option<&RequestId> {
        let initialize = self
            .initialize
            .as_ref()
            .filter(|_| self.negotiated.is_none());
        initialize.map(|(id, _)| id)
    }

    /// Records an answer of the kernel.
    pub(super) fn record_response(&mut self, id: &RequestId, line: &[u8]) {
        if self.pending_initialize() == Some(id) {
            self.negotiated = NegotiatedSession::parse(line);
            // A rejected `initialize` may be repeated.
            if self.negotiated.is_none() {
                self.initialize = None;
            }
        }
    }

    /// The first kernel's answer.
    pub(super) fn negotiated(&self) -> Option<&NegotiatedSession> {
        self.negotiated.as_ref()
    }

    /// The `initialize`, with its id.
    pub(super) fn initialize(&self) -> Option<&(RequestId, Vec<u8>)> {
        self.initialize.as_ref()
    }

    /// The lines to send after the answer to `initialize`, with the ids of requests.
    pub(super) fn lines_after_initialize(
        &self,
    ) -> impl Iterator<Item = (Option<&RequestId>, &[u8])> {
        let ready = self.initialized.iter().map(|line| (None, line.as_slice()));
        let asked = self.log_level.iter().chain(self.subscriptions.values());
        ready.chain(asked.map(|(id, line)| (Some(id), line.as_slice())))
    }
}

impl NegotiatedSession {
    /// Parses an answer; `None` for an error.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let Ok(Message::Response {
            outcome: Ok(result),
            ..
        }) = jsonrpc::parse(line)
        else {
            return None;
        };
        let result: Value = serde_json::from_str(result.get()).ok()?;
        let changes = |list: &&str| result["capabilities"][*list]["listChanged"] == true;
        Some(Self {
            version: result["protocolVersion"].as_str()?.to_owned(),
            lists: ["tools", "prompts", "resources"]
                .into_iter()
                .filter(changes)
                .collect(),
        })
    }
}

fn subscription_uri(line: &[u8]) -> Option<String> {
    let Ok(Message::Request { params, .. }) = jsonrpc::parse(line) else {
        return None;
    };
    let params: Value = serde_json::from_str(params.map_or("{}", RawValue::get)).ok()?;
    params["uri"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_line(handshake: &mut Handshake, id: u8, method: &str, params: &str) -> bool {
        let line = jsonrpc::request(&id.to_string(), method, Some(params));
        handshake.record(method, Some(&u64::from(id).into()), &line)
    }

    fn later_lines(handshake: &Handshake) -> Vec<String> {
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        handshake
            .lines_after_initialize()
            .map(|(_, line)| text(line))
            .collect()
    }

    /// Point 4: the handshake is stored as written, with the latest line of each kind.
    #[test]
    fn the_latest_line_of_each_kind_is_stored() {
        let mut handshake = Handshake::default();
        record_line(&mut handshake, 0, "initialize", "{}");
        assert_eq!(handshake.pending_initialize(), Some(&0.into()));
        let answer = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":true}}}}"#;
        handshake.record_response(&0.into(), answer);
        assert_eq!(handshake.pending_initialize(), None);
        let negotiated = handshake.negotiated().unwrap();
        assert_eq!(negotiated.version, "2025-11-25");
        assert_eq!(negotiated.lists, ["tools", "resources"]);
        record_line(&mut handshake, 1, "logging/setLevel", r#"{"level":"info"}"#);
        record_line(
            &mut handshake,
            2,
            "logging/setLevel",
            r#"{"level":"error"}"#,
        );
        for (id, uri) in [(3, "a"), (4, "b"), (5, "a")] {
            let params = format!(r#"{{"uri":"{uri}"}}"#);
            record_line(&mut handshake, id, "resources/subscribe", &params);
        }
        record_line(&mut handshake, 6, "resources/unsubscribe", r#"{"uri":"b"}"#);
        record_line(&mut handshake, 7, "tools/call", "{}");
        let kept = later_lines(&handshake);
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(
            kept[0].contains("error") && kept[1].contains(r#""id":5"#),
            "{kept:?}"
        );
        assert_eq!(handshake.size, handshake.subscriptions["a"].1.len());
    }

    #[test]
    fn a_rejected_initialize_does_not_count() {
        let mut handshake = Handshake::default();
        record_line(&mut handshake, 0, "initialize", "{}");
        handshake.record_response(
            &0.into(),
            br#"{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"no"}}"#,
        );
        assert!(handshake.initialize().is_none() && handshake.negotiated().is_none());
        record_line(&mut handshake, 1, "initialize", "{}");
        handshake.forget(&1.into());
        assert!(handshake.initialize().is_none(), "it was not written");
    }

    #[test]
    fn stored_lines_are_bounded() {
        let mut handshake = Handshake::default();
        let long = format!(r#"{{"level":"{}"}}"#, "x".repeat(LINE_BYTES_MAX));
        assert!(!record_line(&mut handshake, 1, "logging/setLevel", &long));
        let mut kept = 0;
        while record_line(
            &mut handshake,
            1,
            "resources/subscribe",
            &format!(r#"{{"uri":"{kept}"}}"#),
        ) {
            kept += 1;
        }
        assert_eq!(kept, SUBSCRIPTIONS_MAX);
    }
}
