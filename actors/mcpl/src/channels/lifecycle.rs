//! `channels/open` and `channels/close`: sent to the channel's server; channels are reopened after its restart.

use std::sync::Arc;

use bytes::Bytes;
use mgp_callers::request::Caller;
use mgp_json::{member, quote};
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::channels::registry::{RegisterError, RegisteredChannel};
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::{Close, CloseResult, Open, OpenResult};
use mgp_protocol::mcpl::error::CHANNEL_OPEN_FAILED;
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{ChannelPermit, Channels, PLATFORM_TIMEOUT, permitting_set};
use crate::agents::McplAgent;
use crate::audit::{self, McplActor, McplRecord};

impl Channels {
    /// `channels/open` of a caller that sees these servers; returns the channel under its name at agents.
    ///
    /// # Errors
    /// -32024 with the server's reason, or invalid params when several servers match.
    pub async fn open(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<String, McplError> {
        let (server, server_params) = {
            let requested: Open<'_> = mcp::parse_params(params).map_err(McplError::bad_params)?;
            let server = self.find_opener(caller, &sees, requested.server.as_deref())?;
            let raw = |value: Option<&serde_json::value::RawValue>| {
                value.map_or("{}".to_owned(), |value| value.get().to_owned())
            };
            let server_params = format!(
                r#"{{"type":{},"address":{},"metadata":{}}}"#,
                quote(&requested.kind),
                raw(requested.address),
                raw(requested.metadata)
            );
            (server, server_params)
        };
        let host = self.agents.get(caller.connection);
        let opened = self
            .open_on_server(&server, &server_params, host.as_ref())
            .await;
        let record = McplRecord {
            agent: Some(&caller.agent),
            actor: McplActor::Agent,
            outcome: match &opened {
                Ok(_) => Outcome::Success,
                Err(error) => audit::outcome_of_error(error),
            },
            reason: opened.as_ref().err().map(|error| error.message.as_str()),
            details: json!({"channel": opened.as_ref().ok()}),
            ..McplRecord::from_server(&server, Open::METHOD)
        };
        audit::record(self.host.audit(), &record);
        let id = opened?;
        let name = names::channel_name(&server, &id);
        let servers = self.servers();
        let channel = servers.get(&server).and_then(|channels| channels.get(&id));
        let described = channel.map(|channel| channel.describe_as(&name));
        let closed_again = || McplError::channel_open_failed("it was closed again");
        Ok(format!(
            r#"{{"channel":{}}}"#,
            described.ok_or_else(closed_again)?
        ))
    }

    /// The one matching server: it opens channels, and the caller admits some enabled set of it that uses them.
    fn find_opener(
        &self,
        caller: &Caller,
        sees: &impl Fn(&ServerId) -> bool,
        requested: Option<&str>,
    ) -> Result<ServerId, McplError> {
        let sets = self.host.sets().load();
        let host = self.agents.get(caller.connection);
        let openers = sets.servers.iter().filter(|(server, sets)| {
            let mut using = permits::ANY_USE
                .iter()
                .flat_map(|uses| sets.sets_using(*uses));
            let admits = |set| {
                host.as_ref()
                    .is_none_or(|host| host.allows_set(server, set))
            };
            sets.abilities.channels.lifecycle && sees(server) && using.any(|(set, _)| admits(set))
        });
        let mut openers: Vec<&ServerId> = openers.map(|(server, _)| server).collect();
        openers.retain(|server| requested.is_none_or(|requested| server.as_str() == requested));
        match openers.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(McplError::channel_open_failed(
                "no server here opens channels",
            )),
            several => {
                let named: Vec<&str> = several.iter().map(|one| one.as_str()).collect();
                let words = format!("`serverId` is missing: {} open channels", named.join(", "));
                Err(McplError::bad_params(words))
            }
        }
    }

    /// Asks the server, and registers the channel it opened. A channel that the feature sets or the caller do not permit is
    /// closed again, and is not disclosed to the caller.
    async fn open_on_server(
        &self,
        server: &ServerId,
        params: &str,
        host: Option<&McplAgent>,
    ) -> Result<Arc<str>, McplError> {
        let asked = self
            .host
            .request(server, Open::METHOD, params, PLATFORM_TIMEOUT);
        let answer = asked.await.map_err(|refusal| to_open_error(&refusal))?;
        let malformed = || McplError::channel_open_failed("the server answered no channel");
        let text = std::str::from_utf8(&answer).map_err(|_| malformed())?;
        let opened: OpenResult<'_> = mcp::parse_params(Some(text)).map_err(|_| malformed())?;
        let unregistered = |why: RegisterError| McplError::channel_open_failed(&why.to_string());
        let id = RegisteredChannel::read(opened.channel.get())
            .map_err(unregistered)?
            .id;
        let is_open = {
            let sets = self.host.sets().load();
            permitting_set(&sets, host, (server, &id), permits::ANY_USE).is_some()
        };
        if !is_open {
            self.close_unpermitted(server, &id).await;
            return Err(McplError::channel_open_failed(
                "no enabled feature set lets the channel through that the server opened",
            ));
        }
        {
            let mut servers = self.servers();
            let channels = servers.entry(server.clone()).or_default();
            let opened = channels.register_opened(opened.channel.get(), params);
            opened.map_err(unregistered)?;
        }
        self.notify_agents(server, std::slice::from_ref(&id), &[]);
        Ok(id)
    }

    /// Closes a channel that is not permitted. One that the server had registered before stays.
    async fn close_unpermitted(&self, server: &ServerId, id: &str) {
        let is_registered = {
            let servers = self.servers();
            servers
                .get(server)
                .is_some_and(|channels| channels.get(id).is_some())
        };
        if is_registered {
            return;
        }
        let server_params = format!(r#"{{"channelId":{}}}"#, quote(id));
        let asked = self
            .host
            .request(server, Close::METHOD, &server_params, PLATFORM_TIMEOUT);
        let answer = asked.await;
        let record = McplRecord {
            actor: McplActor::Kernel,
            outcome: match &answer {
                Ok(_) => Outcome::Success,
                Err(refusal) => audit::outcome_of_refusal(refusal),
            },
            reason: Some("it was opened outside of the scopes"),
            details: json!({"channel": id}),
            ..McplRecord::from_server(server, Close::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }

    /// Reopens the channels that were open before the server's restart.
    pub(super) async fn reopen(&self, server: &ServerId, all: Vec<Arc<str>>) {
        for params in all {
            let opened = self.open_on_server(server, &params, None).await;
            let record = McplRecord {
                actor: McplActor::Kernel,
                outcome: match &opened {
                    Ok(_) => Outcome::Success,
                    Err(error) => audit::outcome_of_error(error),
                },
                reason: Some("after a restart of the server"),
                details: json!({"channel": opened.as_ref().ok()}),
                ..McplRecord::from_server(server, Open::METHOD)
            };
            audit::record(self.host.audit(), &record);
            if let Err(error) = opened {
                tracing::warn!(%server, %error, "a channel is not reopened");
            }
        }
    }

    /// `channels/close` of a caller that sees these servers.
    ///
    /// # Errors
    /// Those of MCPL §14.6, or the server's own.
    pub async fn close(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<Bytes, ChannelError> {
        let requested: Close<'_> = mcp::parse_params(params).map_err(McplError::bad_params)?;
        let permit = self.check_permit(caller, sees, &requested.channel_id, permits::ANY_USE)?;
        let ChannelPermit {
            server,
            channel,
            set,
        } = permit;
        let closes = {
            let sets = self.host.sets().load();
            let sets = sets.get(&server);
            sets.is_some_and(|sets| sets.abilities.channels.lifecycle)
        };
        if !closes {
            return Err(McplError::channel_not_permitted(&requested.channel_id).into());
        }
        let server_params = format!(r#"{{"channelId":{}}}"#, quote(&channel.id));
        let asked = self
            .host
            .request(&server, Close::METHOD, &server_params, PLATFORM_TIMEOUT);
        let answer = asked.await;
        let closed = answer.as_ref().is_ok_and(|answer| {
            serde_json::from_slice::<CloseResult>(answer).is_ok_and(|answer| answer.closed)
        });
        if closed {
            if let Some(channels) = self.servers().get_mut(&server) {
                channels.remove(&channel.id);
            }
            self.notify_agents(&server, &[], std::slice::from_ref(&channel.id));
        }
        let record = McplRecord {
            feature_set: Some(&set),
            agent: Some(&caller.agent),
            actor: McplActor::Agent,
            outcome: match &answer {
                Ok(_) if closed => Outcome::Success,
                Ok(_) => Outcome::Failure,
                Err(refusal) => audit::outcome_of_refusal(refusal),
            },
            details: json!({"channel": &*channel.id}),
            ..McplRecord::from_server(&server, Close::METHOD)
        };
        audit::record(self.host.audit(), &record);
        answer?;
        Ok(format!(r#"{{"closed":{closed}}}"#).into())
    }
}

/// An error of MCPL, or of the kernel.
#[derive(Debug)]
pub enum ChannelError {
    /// An error of MCPL.
    Mcpl(McplError),
    /// An error of the kernel or the server.
    Kernel(Refusal),
}

impl From<McplError> for ChannelError {
    fn from(error: McplError) -> Self {
        Self::Mcpl(error)
    }
}

impl From<Refusal> for ChannelError {
    fn from(refusal: Refusal) -> Self {
        Self::Kernel(refusal)
    }
}

/// Why a server did not open a channel: its own error with its text, if it is one of opening.
fn to_open_error(refusal: &Refusal) -> McplError {
    let Refusal::Peer(error) = refusal else {
        return McplError::channel_open_failed(&refusal.to_string());
    };
    let is_open_error = member(error.get(), "code") == Some(&CHANNEL_OPEN_FAILED.to_string());
    let data = member(error.get(), "data").filter(|_| is_open_error);
    let words = member(error.get(), "message");
    let words: String = words
        .and_then(|words| serde_json::from_str(words).ok())
        .unwrap_or_else(|| "it answered with an error".into());
    let mut error = McplError::channel_open_failed(&words);
    if let Some(data) = data {
        error.data = Some(data.to_owned());
    }
    error
}
