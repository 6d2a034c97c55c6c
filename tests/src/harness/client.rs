//! A client of any version, so that one story can be told of all of them.

use std::path::Path;

use serde_json::{Value, json};

use super::envelope::MODERN;
use super::{Agent, Answer, ModernAgent};

/// A client that has said who it is.
pub enum Client {
    /// Of a version that opens with `initialize`.
    Legacy(Box<Agent>),
    /// Of 2026-07-28.
    Modern(Box<ModernAgent>),
}

impl Client {
    /// At a Streamable HTTP endpoint.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn over_http(url: &str, version: &str, capabilities: &str) -> Self {
        match version {
            MODERN => Self::Modern(Box::new(ModernAgent::over_http(url, capabilities))),
            _ => Self::opened(Agent::over_http(url), version, capabilities).await,
        }
    }

    /// At a Unix socket.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn over_socket(path: &Path, version: &str, capabilities: &str) -> Self {
        match version {
            MODERN => {
                let agent = ModernAgent::over_socket(path, capabilities).await;
                Self::Modern(Box::new(agent))
            }
            _ => Self::opened(Agent::over_socket(path).await, version, capabilities).await,
        }
    }

    async fn opened(mut agent: Agent, version: &str, capabilities: &str) -> Self {
        let opened = agent.initialize(version, capabilities).await.result();
        assert_eq!(opened["protocolVersion"], version);
        Self::Legacy(Box::new(agent))
    }

    /// True of 2026-07-28.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        matches!(self, Self::Modern(_))
    }

    /// From now on questions of this method are answered with `result`.
    pub fn answers(&mut self, method: &str, result: Value) {
        match self {
            Self::Legacy(agent) => agent.answers(method, result),
            Self::Modern(agent) => agent.answers(method, result),
        }
    }

    /// Makes a request, answering what is asked meanwhile.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn request(&mut self, method: &str, params: Value) -> Answer {
        match self {
            Self::Legacy(agent) => agent.request(method, params).await,
            Self::Modern(agent) => agent.request(method, params).await,
        }
    }

    /// Calls a tool, answering what is asked meanwhile.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn call(&mut self, name: &str, arguments: Value) -> Answer {
        let params = json!({"name": name, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// Makes a request without waiting; gives its id.
    pub async fn start(&mut self, method: &str, params: Value) -> Value {
        match self {
            Self::Legacy(agent) => agent.start(method, params).await,
            Self::Modern(agent) => agent.start(method, params).await,
        }
    }

    /// Waits for the answer to a request that was started.
    ///
    /// # Panics
    /// When none comes.
    pub async fn answer_to(&mut self, id: &Value) -> Answer {
        match self {
            Self::Legacy(agent) => agent.answer_to(id).await,
            Self::Modern(agent) => agent.answer_to(id).await,
        }
    }

    /// Takes a request back in the way of its version.
    pub async fn cancel(&mut self, id: &Value) {
        match self {
            Self::Legacy(agent) => {
                let params = json!({"requestId": id, "reason": "changed my mind"});
                agent.notify("notifications/cancelled", params).await;
            }
            Self::Modern(agent) => agent.cancel(id).await,
        }
    }

    /// Wants to hear log messages from this level on.
    ///
    /// # Panics
    /// When that is refused.
    pub async fn wants_logs(&mut self, level: &str) {
        match self {
            Self::Legacy(agent) => {
                let set = agent.request("logging/setLevel", json!({"level": level}));
                set.await.result();
            }
            Self::Modern(agent) => agent.envelope.log_level = Some(level.to_owned()),
        }
    }

    /// Wants to hear of changes of the list of tools. Legacy clients hear of them anyway.
    ///
    /// # Panics
    /// When that is not acknowledged.
    pub async fn wants_news_of_tools(&mut self) {
        if let Self::Modern(agent) = self {
            agent.listen(json!({"toolsListChanged": true})).await;
            agent
                .hears("notifications/subscriptions/acknowledged")
                .await;
        }
    }

    /// Waits for a notification of this method that was not taken yet, and takes it.
    ///
    /// # Panics
    /// When none comes by the deadline.
    pub async fn hears(&mut self, method: &str) -> Value {
        match self {
            Self::Legacy(agent) => agent.hears(method).await,
            Self::Modern(agent) => agent.hears(method).await,
        }
    }

    /// The notifications of this method that came and were not taken yet.
    #[must_use]
    pub fn heard(&self, method: &str) -> Vec<&Value> {
        match self {
            Self::Legacy(agent) => agent.heard(method),
            Self::Modern(agent) => agent.heard(method),
        }
    }

    /// All notifications that came and were not taken yet.
    #[must_use]
    pub fn all_heard(&self) -> &[Value] {
        match self {
            Self::Legacy(agent) => agent.all_heard(),
            Self::Modern(agent) => agent.all_heard(),
        }
    }

    /// Drops the notifications that came so far.
    pub fn forget(&mut self) {
        match self {
            Self::Legacy(agent) => agent.forget(),
            Self::Modern(agent) => agent.forget(),
        }
    }

    /// What was asked of this client so far: method and params of each.
    #[must_use]
    pub fn asked(&self) -> &[Value] {
        match self {
            Self::Legacy(agent) => agent.asked(),
            Self::Modern(agent) => agent.asked(),
        }
    }

    /// Leaves.
    pub async fn close(self) {
        match self {
            Self::Legacy(agent) => agent.close().await,
            Self::Modern(agent) => agent.close().await,
        };
    }
}
