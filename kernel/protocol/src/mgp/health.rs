//! `mgp/health/*`: the health of a peer (MGP §11.3). Version 0.2 asks the peer about itself; later drafts
//! ask its kernel about a named server.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "mgp/health/ping" => Ping,
    "mgp/health/status" => Status,
}

/// `mgp/health/ping`: answered at once with [`Pong`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// The time of the request, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// At a kernel: the server. The kernel itself if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
}

/// The answer to `mgp/health/ping`. A server may omit all members; that it answered is most important.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Its health.
    #[serde(default)]
    pub status: Health,
    /// The time of the answer, in ISO 8601.
    #[serde(default)]
    pub timestamp: Option<String>,
    /// Seconds since its start.
    #[serde(default)]
    pub uptime_secs: Option<Number>,
    /// Its own id.
    #[serde(default)]
    pub server_id: Option<String>,
}

/// `mgp/health/status`: the detailed health; answers [`Readiness`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// As in [`Ping`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
}

/// The answer to `mgp/health/status`.
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    /// Its health.
    pub status: Health,
    /// Seconds since its start.
    pub uptime_secs: u64,
    /// The number of tools that can be called now.
    pub tools_available: u64,
    /// The number of all tools.
    pub tools_total: u64,
    /// The number of in-flight requests.
    pub pending_requests: u64,
    /// The used resources; the keys are not stable.
    pub resources: Box<RawValue>,
    /// The checks; the keys are not stable.
    pub checks: Box<RawValue>,
}

/// The resources used by the processes of a server, or by the kernel: the keys of `resources` from the
/// kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourcesInUse {
    /// Resident memory; memory shared by several processes is counted for each.
    pub memory_bytes: u64,
    /// The processor time so far, including ended child processes.
    pub cpu_seconds: f64,
    /// Open descriptors, of those processes whose descriptors the kernel may read.
    pub open_descriptors: u64,
    /// Child processes.
    pub children: u64,
}

/// Health of the kernel or of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Fully operational.
    #[default]
    Healthy,
    /// Running, but not fully operational.
    Degraded,
    /// Has errors, or does not answer.
    Unhealthy,
}

impl Health {
    /// All values, the best first.
    pub const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unhealthy];

    /// The value on the wire.
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
    /// An unknown value does not count as healthy.
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

    /// MGP-131, MGP-134: the members of the document; an unknown value is not healthy.
    #[test]
    fn pong_is_parsed_leniently() {
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

    /// MGP-131: a ping has a timestamp, and at a kernel it may name a server.
    #[test]
    fn ping_omits_absent_members() {
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
