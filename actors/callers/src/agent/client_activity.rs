//! What the operator sees of every client.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::mcp::Implementation;
use mgp_protocol::mgp::kernel;

use mgp_runtime::time::monotonic_now;

/// Characters kept of a name or version, which are shown in a table.
const NAME_CHARS_MAX: usize = 64;

/// One client: since when it is connected, its name and how much it asks.
#[derive(Debug)]
pub struct ClientActivity {
    since: MonotonicTime,
    introduction: OnceLock<ClientIntroduction>,
    calls: AtomicU64,
    /// Its last request, in milliseconds of the kernel's clock.
    last_request_ms: AtomicU64,
    /// Where it works, as its client on the owner's socket said.
    folder: OnceLock<Arc<Path>>,
}

/// What a client says about itself, unverified.
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
    /// Notes the client's name and version of MCP; only the first call counts.
    pub(crate) fn introduce(&self, client: &Implementation<'_>, speaks: Version) {
        self.introduction.get_or_init(|| ClientIntroduction {
            name: truncate(&client.name),
            version: truncate(&client.version),
            protocol_version: speaks,
        });
    }

    /// The same from the JSON text of a `clientInfo`, which stateless requests may omit.
    pub fn introduce_text(&self, client: Option<&str>, speaks: Version) {
        if self.introduction.get().is_some() {
            return;
        }
        let nobody = Implementation {
            name: "".into(),
            version: "".into(),
        };
        let client = client.and_then(|text| serde_json::from_str(text).ok());
        self.introduce(&client.unwrap_or(nobody), speaks);
    }

    /// Notes the folder that it works in; only the first one counts.
    pub fn set_folder(&self, folder: Arc<Path>) {
        let _ = self.folder.set(folder);
    }

    /// The folder that it works in, if it said one.
    #[must_use]
    pub fn folder(&self) -> Option<&Arc<Path>> {
        self.folder.get()
    }

    /// Notes a request that came then.
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

    /// The client as shown to the operator; `agent` is who the kernel knows it as.
    #[must_use]
    pub(crate) fn to_client(
        &self,
        agent: String,
        door: &str,
        view: &CatalogView,
    ) -> kernel::Client {
        let said = self.introduction.get();
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        kernel::Client {
            agent,
            name: said.and_then(|said| text(&said.name)),
            version: said.and_then(|said| text(&said.version)),
            speaks: said.map(|said| said.protocol_version.as_str().to_owned()),
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
    fn a_client_is_what_it_said_first_and_not_at_length() {
        let activity = ClientActivity::default();
        let told = activity.to_client("agent.a".into(), "http", &CatalogView::All);
        assert_eq!((told.name, told.speaks), (None, None));
        let long = format!(r#"{{"name":"{}","version":7}}"#, "é".repeat(200));
        activity.introduce_text(Some(&long), Version::STATELESS);
        activity.introduce_text(
            Some(r#"{"name":"other","version":"2"}"#),
            Version::STATELESS,
        );
        let told = activity.to_client("agent.a".into(), "http", &CatalogView::All);
        assert_eq!(told.name, None, "a version that is no text");
        let activity = ClientActivity::default();
        let long = long.replace('7', "\"7\"");
        activity.introduce_text(Some(&long), Version::STATELESS);
        let told = activity.to_client("agent.a".into(), "http", &CatalogView::All);
        assert_eq!(told.name.unwrap().chars().count(), NAME_CHARS_MAX);
        assert_eq!(told.version.as_deref(), Some("7"));
        assert_eq!(told.speaks.as_deref(), Some("2026-07-28"));
    }

    #[test]
    fn calls_are_counted_and_other_requests_are_heard() {
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
