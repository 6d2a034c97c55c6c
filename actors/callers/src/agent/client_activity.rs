//! The activity of each client, as shown to the operator.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::mcp::Implementation;
use mgp_protocol::mgp::kernel;

use mgp_runtime::time::monotonic_now;

/// Characters stored of a name or version, which are shown in a table.
const NAME_CHARS_MAX: usize = 64;

/// The activity of one client: connection time, name, and number of requests.
#[derive(Debug)]
pub struct ClientActivity {
    since: MonotonicTime,
    introduction: OnceLock<ClientIntroduction>,
    calls: AtomicU64,
    /// Its last request, in milliseconds of the kernel's clock.
    last_request_ms: AtomicU64,
    /// The working folder, as reported by the client on the operator's socket.
    folder: OnceLock<Arc<Path>>,
}

/// The name and version that a client reports, unverified.
#[derive(Debug)]
struct ClientIntroduction {
    name: String,
    version: String,
    protocol_version: Version,
}

impl Default for ClientActivity {
    fn default() -> Self {
        let since = monotonic_now();
        Self {
            since,
            introduction: OnceLock::new(),
            calls: AtomicU64::new(0),
            last_request_ms: AtomicU64::new(millis(since)),
            folder: OnceLock::new(),
        }
    }
}

impl ClientActivity {
    /// Records the client's name and protocol version; only the first call counts.
    pub(crate) fn introduce(&self, client: &Implementation<'_>, version: Version) {
        self.introduction.get_or_init(|| ClientIntroduction {
            name: truncate(&client.name),
            version: truncate(&client.version),
            protocol_version: version,
        });
    }

    /// Records the JSON text of a `clientInfo`, which stateless requests may omit; only the first call
    /// counts.
    pub fn introduce_text(&self, client: Option<&str>, version: Version) {
        if self.introduction.get().is_some() {
            return;
        }
        let anonymous = Implementation {
            name: "".into(),
            version: "".into(),
        };
        let client = client.and_then(|text| serde_json::from_str(text).ok());
        self.introduce(&client.unwrap_or(anonymous), version);
    }

    /// Sets the working folder; only the first call counts.
    pub fn set_folder(&self, folder: Arc<Path>) {
        let _ = self.folder.set(folder);
    }

    /// The working folder, if the client reported one.
    #[must_use]
    pub fn folder(&self) -> Option<&Arc<Path>> {
        self.folder.get()
    }

    /// Records a request received at `at`.
    pub fn record_request(&self, method: &str, at: MonotonicTime) {
        if method == "tools/call" {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        self.last_request_ms.store(millis(at), Ordering::Relaxed);
    }

    /// Milliseconds since its last request.
    pub(super) fn idle_ms(&self) -> u64 {
        millis(monotonic_now()).saturating_sub(self.last_request_ms.load(Ordering::Relaxed))
    }

    /// The client as shown to the operator; `agent` is its identity.
    #[must_use]
    pub(crate) fn to_client(
        &self,
        agent: String,
        door: &str,
        view: &CatalogView,
    ) -> kernel::Client {
        let introduction = self.introduction.get();
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        kernel::Client {
            agent,
            name: introduction.and_then(|introduction| text(&introduction.name)),
            version: introduction.and_then(|introduction| text(&introduction.version)),
            speaks: introduction
                .map(|introduction| introduction.protocol_version.as_str().to_owned()),
            door: door.to_owned(),
            server: match view {
                CatalogView::All | CatalogView::Set(_) => None,
                CatalogView::One(server) => Some(server.to_string()),
            },
            set: match view {
                CatalogView::Set(set) => Some(set.to_string()),
                CatalogView::All | CatalogView::One(_) => None,
            },
            since_ms: millis(monotonic_now()).saturating_sub(millis(self.since)),
            silent_ms: self.idle_ms(),
            calls: self.calls.load(Ordering::Relaxed),
            holds: 0,
            held: Vec::new(),
        }
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

fn millis(moment: MonotonicTime) -> u64 {
    u64::try_from(moment.since_start().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_introduction_counts_and_is_truncated() {
        let activity = ClientActivity::default();
        let shown = activity.to_client("agent.a".into(), "http", &CatalogView::All);
        assert_eq!((shown.name, shown.speaks), (None, None));
        let long = format!(r#"{{"name":"{}","version":7}}"#, "é".repeat(200));
        activity.introduce_text(Some(&long), Version::STATELESS);
        activity.introduce_text(
            Some(r#"{"name":"other","version":"2"}"#),
            Version::STATELESS,
        );
        let shown = activity.to_client("agent.a".into(), "http", &CatalogView::All);
        assert_eq!(shown.name, None, "a version that is no text");
        let activity = ClientActivity::default();
        let long = long.replace('7', "\"7\"");
        activity.introduce_text(Some(&long), Version::STATELESS);
        let shown = activity.to_client("agent.a".into(), "http", &CatalogView::All);
        assert_eq!(shown.name.unwrap().chars().count(), NAME_CHARS_MAX);
        assert_eq!(shown.version.as_deref(), Some("7"));
        assert_eq!(shown.speaks.as_deref(), Some("2026-07-28"));
    }

    #[test]
    fn only_tool_calls_are_counted() {
        let activity = ClientActivity::default();
        for method in ["tools/call", "tools/list", "tools/call"] {
            activity.record_request(method, monotonic_now());
        }
        assert_eq!(
            activity
                .to_client(String::new(), "http", &CatalogView::All)
                .calls,
            2
        );
    }
}
