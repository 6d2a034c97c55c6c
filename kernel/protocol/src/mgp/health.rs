//! `mgp/health/*`: health of a peer (MGP §11.3). Version 0.2 asks the peer about itself; later drafts ask
//! its kernel about a named server.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "mgp/health/ping" => Ping,
    "mgp/health/status" => Status,
}

/// `mgp/health/ping`: is answered at once; answers [`Pong`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// When it was asked, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Of a kernel: which of its servers is meant. The kernel itself when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
}

/// Answer of `mgp/health/ping`. All that a server leaves out is not there; that it answered says most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Its health.
    #[serde(default)]
    pub status: Health,
    /// When it was answered, in ISO 8601.
    #[serde(default)]
    pub timestamp: Option<String>,
    /// Seconds since its start.
    #[serde(default)]
    pub uptime_secs: Option<Number>,
    /// Who it says it is.
    #[serde(default)]
    pub server_id: Option<String>,
}

/// `mgp/health/status`: how it is in detail; answers [`Readiness`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// As in [`Ping`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
}

/// Answer of `mgp/health/status`.
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    /// Its health.
    pub status: Health,
    /// Seconds since its start.
    pub uptime_secs: u64,
    /// Tools that can be called right now.
    pub tools_available: u64,
    /// All tools there would be if everything were well.
    pub tools_total: u64,
    /// Requests under way.
    pub pending_requests: u64,
    /// What it uses; nobody may depend on a key.
    pub resources: Box<RawValue>,
    /// What it looked at; nobody may depend on a key.
    pub checks: Box<RawValue>,
}

/// What the processes of a server, or the kernel, use: the keys of `resources` where the kernel fills it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourcesInUse {
    /// Resident memory; what several processes share is counted for each.
    pub memory_bytes: u64,
    /// Processor time so far, with that of processes below that have ended.
    pub cpu_seconds: f64,
    /// Open descriptors, of those processes whose descriptors the kernel may read.
    pub open_descriptors: u64,
    /// Processes below the first.
    pub children: u64,
}

/// Health of the kernel or of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Fully operational.
    #[default]
    Healthy,
    /// Runs, but not all of it works.
    Degraded,
    /// Has errors, or does not answer.
    Unhealthy,
}

impl Health {
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unhealthy];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl<'de> Deserialize<'de> for Health {
    /// A word nobody knows is not the one that says that all is well.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = Self::ALL.into_iter().find(|health| health.as_str() == word);
        Ok(known.unwrap_or(Self::Degraded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    /// MGP-131, MGP-134: the members of the document; a word nobody knows is no good sign.
    #[test]
    fn an_answer_to_a_ping_is_read_for_what_it_says() {
        assert_eq!(
            [Ping::METHOD, Status::METHOD],
            ["mgp/health/ping", "mgp/health/status"]
        );
        let whole = r#"{"status":"degraded","timestamp":"2026-02-27T12:00:00.005Z",
            "uptime_secs":3600,"server_id":"mind.cerebras"}"#;
        let pong: Pong = parse_params(Some(whole)).unwrap();
        assert_eq!(pong.status, Health::Degraded);
        assert_eq!(pong.uptime_secs, Some(3600.into()));
        assert_eq!(pong.server_id.as_deref(), Some("mind.cerebras"));
        let status = |text: &str| parse_params::<Pong>(Some(text)).map(|pong| pong.status);
        assert_eq!(status("{}").unwrap(), Health::Healthy);
        assert_eq!(status(r#"{"status":"fine"}"#).unwrap(), Health::Degraded);
        assert!(status(r#"{"status":1}"#).is_err());
        for health in Health::ALL {
            let text = serde_json::to_string(&health).unwrap();
            assert_eq!(text, format!("\"{}\"", health.as_str()));
            assert_eq!(serde_json::from_str::<Health>(&text).unwrap(), health);
        }
    }

    /// MGP-131: a ping says when, and of a kernel it can name a server.
    #[test]
    fn a_ping_says_no_more_than_it_knows() {
        let ping = Ping {
            timestamp: Some("2026-02-27T12:00:00.000Z".into()),
            server_id: None,
        };
        let text = serde_json::to_string(&ping).unwrap();
        assert_eq!(text, r#"{"timestamp":"2026-02-27T12:00:00.000Z"}"#);
        let of_one: Status = parse_params(Some(r#"{"server_id":"files","_meta":{}}"#)).unwrap();
        assert_eq!(of_one.server_id.as_deref(), Some("files"));
    }
}
