//! The channels of one connection to a server, and those that are opened again on the next one.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_json::{Splice, member};
use mgp_protocol::mcp;
use mgp_protocol::mcpl::channels::{CHANNEL_ID_MAX, DESCRIPTOR_MAX, Descriptor, Direction};

/// Channels of one connection. A person who is in more has no use for a list of them.
pub(crate) const CHANNELS_MAX: usize = 4096;
/// What their descriptions take together, in bytes.
pub(crate) const DESCRIPTORS_MAX: usize = 4 << 20;
/// Channels that are opened again after a restart of their server; at the bound no more are remembered.
pub(crate) const REOPENED_MAX: usize = 256;

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredChannel {
    /// The server's own id.
    pub id: Arc<str>,
    /// The platform.
    pub kind: Arc<str>,
    /// Which way messages go.
    pub(crate) direction: Direction,
    /// Its description, as the server wrote it.
    json: Arc<str>,
}

/// Why a channel is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// It is not described as MCPL has it.
    #[error("a channel is not described as MCPL has it: {0}")]
    Malformed(String),
    /// Its id is none.
    #[error("a channel's id is a text of 1 to {CHANNEL_ID_MAX} bytes without control characters")]
    InvalidId,
    /// Its description is too long.
    #[error("the description of a channel has more than {DESCRIPTOR_MAX} bytes")]
    TooLong,
    /// There are too many.
    #[error("a server has at most {CHANNELS_MAX} channels, described in {DESCRIPTORS_MAX} bytes")]
    Full,
}

impl RegisteredChannel {
    /// Reads a description.
    ///
    /// # Errors
    /// [`RegisterError`]
    pub fn read(json: &str) -> Result<Self, RegisterError> {
        if json.len() > DESCRIPTOR_MAX {
            return Err(RegisterError::TooLong);
        }
        let read: Descriptor<'_> = mcp::parse_params(Some(json))
            .map_err(|refusal| RegisterError::Malformed(refusal.to_string()))?;
        if !is_id(&read.id) {
            return Err(RegisterError::InvalidId);
        }
        Ok(Self {
            id: (&*read.id).into(),
            kind: (&*read.kind).into(),
            direction: read.direction,
            json: json.into(),
        })
    }

    /// Its description under another name.
    #[must_use]
    pub fn describe_as(&self, name: &str) -> String {
        let mut splice = Splice::new(&self.json);
        if let Some(id) = member(&self.json, "id") {
            splice.replace(id, mgp_json::quote(name));
        }
        splice.finish().into_owned()
    }

    /// Its description, as the server wrote it.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// True when something may be published to it.
    #[must_use]
    pub fn is_outgoing(&self) -> bool {
        self.direction != Direction::Inbound
    }

    /// True when messages come in from it.
    #[must_use]
    pub fn is_incoming(&self) -> bool {
        self.direction != Direction::Outbound
    }
}

/// True for what may be a channel's id.
#[must_use]
pub fn is_id(id: &str) -> bool {
    (1..=CHANNEL_ID_MAX).contains(&id.len()) && !id.chars().any(char::is_control)
}

/// The channels of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerChannels {
    channels: BTreeMap<Arc<str>, RegisteredChannel>,
    bytes: usize,
    /// What was opened by the host: the id, and the params to open it again with.
    opened: BTreeMap<Arc<str>, Arc<str>>,
}

impl ServerChannels {
    /// The channel of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&RegisteredChannel> {
        self.channels.get(id)
    }

    /// All channels in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredChannel> {
        self.channels.values()
    }

    /// Registers these channels, all or none; one whose id is there already takes the other's place.
    ///
    /// # Errors
    /// [`RegisterError`]: nothing was registered.
    pub fn register<'a>(
        &mut self,
        descriptors: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Vec<Arc<str>>, RegisterError> {
        if descriptors.len() > CHANNELS_MAX {
            return Err(RegisterError::Full);
        }
        let read: Vec<_> = descriptors
            .map(RegisteredChannel::read)
            .collect::<Result<_, _>>()?;
        let (was, was_bytes) = (self.channels.clone(), self.bytes);
        let ids = read.iter().map(|channel| channel.id.clone()).collect();
        read.into_iter().for_each(|channel| self.insert(channel));
        if self.channels.len() > CHANNELS_MAX || self.bytes > DESCRIPTORS_MAX {
            (self.channels, self.bytes) = (was, was_bytes);
            return Err(RegisterError::Full);
        }
        Ok(ids)
    }

    fn insert(&mut self, channel: RegisteredChannel) {
        self.bytes += channel.json.len();
        if let Some(was) = self.channels.insert(channel.id.clone(), channel) {
            self.bytes -= was.json.len();
        }
    }

    /// Takes a channel out; it is not opened again.
    pub fn remove(&mut self, id: &str) {
        if let Some(gone) = self.channels.remove(id) {
            self.bytes -= gone.json.len();
        }
        self.opened.remove(id);
    }

    /// Registers what the server opened at the host's wish.
    ///
    /// # Errors
    /// [`RegisterError`]
    pub fn register_opened(
        &mut self,
        descriptor: &str,
        params: &str,
    ) -> Result<Arc<str>, RegisterError> {
        let id = RegisteredChannel::read(descriptor)?.id;
        self.register([descriptor].into_iter())?;
        if self.opened.len() < REOPENED_MAX || self.opened.contains_key(&id) {
            self.opened.insert(id.clone(), params.into());
        }
        Ok(id)
    }

    /// The connection is gone and with it its channels. What the host had opened is opened again on the next one.
    pub fn disconnect(&mut self) {
        self.channels.clear();
        self.bytes = 0;
    }

    /// What to open again: the params of each.
    #[must_use]
    pub fn reopen_params(&self) -> Vec<Arc<str>> {
        self.opened.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(id: &str) -> String {
        format!(r#"{{"id":"{id}","type":"t","direction":"bidirectional","label":"L"}}"#)
    }

    fn ids(channels: &ServerChannels) -> Vec<&str> {
        channels.iter().map(|channel| &*channel.id).collect()
    }

    /// MCPL-116, MCPL-117, MCPL-118: registered, updated in place, removed, and named for agents.
    #[test]
    fn channels_are_registered_updated_and_removed() {
        let mut channels = ServerChannels::default();
        let (a, b) = (descriptor("a"), descriptor("b"));
        channels.register([&*a, &*b].into_iter()).unwrap();
        let again = a.replace("bidirectional", "inbound");
        channels.register([&*again].into_iter()).unwrap();
        assert_eq!(ids(&channels), ["a", "b"]);
        let one = channels.get("a").unwrap();
        assert!(!one.is_outgoing() && one.is_incoming());
        assert_eq!(
            one.describe_as("chat:a"),
            r#"{"id":"chat:a","type":"t","direction":"inbound","label":"L"}"#
        );
        channels.remove("a");
        assert_eq!(ids(&channels), ["b"]);
        assert_eq!(channels.bytes, b.len());
    }

    /// MCPL-117: a server that registers 1,000,000 channels, or describes one at length, has registered none.
    #[test]
    fn too_many_channels_are_none() {
        let mut channels = ServerChannels::default();
        channels.register([&*descriptor("a")].into_iter()).unwrap();
        let many: Vec<String> = (0..1_000_000).map(|n| descriptor(&n.to_string())).collect();
        let full = channels.register(many.iter().map(String::as_str));
        assert_eq!(full, Err(RegisterError::Full));
        for batch in many.chunks(1000).take(4) {
            channels.register(batch.iter().map(String::as_str)).unwrap();
        }
        let more = &many[4000..4100];
        assert_eq!(
            channels.register(more.iter().map(String::as_str)),
            Err(RegisterError::Full)
        );
        assert_eq!(channels.iter().count(), 4001);
        let long = descriptor(&"x".repeat(CHANNEL_ID_MAX + 1));
        let large = descriptor("y").replace("\"L\"", &format!("\"{}\"", "l".repeat(9000)));
        for (bad, why) in [
            (long.as_str(), RegisterError::InvalidId),
            (&large, RegisterError::TooLong),
            (&descriptor(""), RegisterError::InvalidId),
            (&descriptor("a\\u001b[2J"), RegisterError::InvalidId),
        ] {
            assert_eq!(channels.register([bad].into_iter()), Err(why));
        }
    }

    /// MCPL-120, MCPL-148: what was opened is opened again after the connection is lost, and not when it was closed.
    #[test]
    fn what_was_opened_is_opened_again() {
        let mut channels = ServerChannels::default();
        channels
            .register_opened(&descriptor("a"), r#"{"type":"t"}"#)
            .unwrap();
        channels
            .register_opened(&descriptor("b"), r#"{"type":"u"}"#)
            .unwrap();
        channels.remove("a");
        channels.disconnect();
        assert!(channels.get("b").is_none());
        let again: Vec<_> = channels.reopen_params();
        assert_eq!(again.len(), 1);
        assert_eq!(&*again[0], r#"{"type":"u"}"#);
    }
}
