//! Requests to share and to unshare, as typed.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::{
    BadToolPattern, NODES_NAMED_MAX, SHARES_MAX, Share, ShareAudience, ShareChange, Shares,
    ToolPattern,
};

/// `share SERVER --to AUDIENCE [--tools PATTERN]`; the names of server and node are resolved already.
#[derive(Clone, Debug)]
pub struct ShareRequest<'a> {
    /// The server.
    pub server: ServerId,
    /// The audience.
    pub to: ShareAudience,
    /// The pattern as typed; `None` for all tools.
    pub tools: Option<&'a str>,
    /// The server's own names for its tools; `None` when it has listed none yet.
    pub listed_tools: Option<&'a BTreeSet<Arc<str>>>,
    /// The rule may be for future tools: it need not match an existing one.
    pub allow_unmatched: bool,
}

/// Why a request to share or unshare is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareRequestError {
    /// The server belongs to another node, or is one agent's instance.
    #[error("{0} is no server of this node's own: only its owner shares it")]
    NotLocal(ServerId),
    /// The pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] BadToolPattern),
    /// The rule matches no tool.
    #[error("{server} has no tool that {pattern:?} means{}", render_suggestion(.suggestion))]
    UnknownTool {
        /// The server.
        server: ServerId,
        /// As typed.
        pattern: String,
        /// A similar name, if there is one.
        suggestion: Option<String>,
    },
    /// The server has not listed its tools yet.
    #[error(
        "{0} has listed no tools yet: share all of them, or say that the rule is for what is to come"
    )]
    ToolsNotListed(ServerId),
    /// The limit of rules is reached.
    #[error("there are {SHARES_MAX} rules: end some, or share a whole server")]
    TooMany,
    /// The limit of named nodes is reached.
    #[error(
        "rules name {NODES_NAMED_MAX} nodes, each of which has an index of its own: share with the cluster"
    )]
    TooManyNodes,
    /// There is no such rule to remove.
    #[error("there is no such rule; {server} is shared {}", render_rules(.existing))]
    NotShared {
        /// The server.
        server: ServerId,
        /// The existing rules.
        existing: Vec<Share>,
    },
}

fn render_suggestion(suggestion: &Option<String>) -> String {
    let hint = |name: &String| format!("; {name:?} is one");
    suggestion.as_ref().map(hint).unwrap_or_default()
}

fn render_rules(rules: &[Share]) -> String {
    let texts: Vec<_> = rules
        .iter()
        .map(|rule| format!("{} to {}", rule.tools, rule.to))
        .collect();
    if texts.is_empty() {
        "with nobody".to_owned()
    } else {
        texts.join(", ")
    }
}

impl Shares {
    /// The change that shares; `None` when it is shared already.
    ///
    /// # Errors
    /// [`ShareRequestError`]; then nothing may be stored.
    pub fn share(
        &self,
        request: &ShareRequest<'_>,
    ) -> Result<Option<ShareChange>, ShareRequestError> {
        let server = &request.server;
        if ServerId::parse(server.as_str()).is_err() {
            return Err(ShareRequestError::NotLocal(server.clone()));
        }
        let rule = Share {
            server: server.clone(),
            to: request.to,
            tools: parse_pattern(request)?,
        };
        if self.iter().any(|existing| existing == rule) {
            return Ok(None);
        }
        if self.len() >= SHARES_MAX {
            return Err(ShareRequestError::TooMany);
        }
        if let ShareAudience::Node(node) = request.to {
            let named = self.named_nodes();
            if named.len() >= NODES_NAMED_MAX && !named.contains(&node) {
                return Err(ShareRequestError::TooManyNodes);
            }
        }
        Ok(Some(ShareChange::Share(rule)))
    }

    /// The changes that unshare a server: for all audiences or one, for one pattern or all of them. The server need
    /// not exist any more.
    ///
    /// # Errors
    /// [`ShareRequestError::NotShared`] where there is no such rule: another one may still share the same tool.
    pub fn unshare(
        &self,
        server: &ServerId,
        to: Option<ShareAudience>,
        tools: Option<&str>,
    ) -> Result<Vec<ShareChange>, ShareRequestError> {
        let existing: Vec<Share> = self.iter().filter(|rule| rule.server == *server).collect();
        let is_selected = |rule: &&Share| {
            let (to, tools) = (to.unwrap_or(rule.to), tools.map(str::to_owned));
            rule.to == to && tools.is_none_or(|tools| tools == rule.tools.to_string())
        };
        let ended = existing.iter().filter(is_selected).cloned();
        let ended: Vec<_> = ended.map(ShareChange::Unshare).collect();
        if ended.is_empty() {
            Err(ShareRequestError::NotShared {
                server: server.clone(),
                existing,
            })
        } else {
            Ok(ended)
        }
    }
}

fn parse_pattern(request: &ShareRequest<'_>) -> Result<ToolPattern, ShareRequestError> {
    let Some(typed) = request.tools else {
        return Ok(ToolPattern::all());
    };
    let listed = request
        .listed_tools
        .into_iter()
        .flatten()
        .map(|tool| &**tool);
    let pattern = ToolPattern::parse(typed, listed.clone())?;
    if pattern.is_all() || request.allow_unmatched {
        return Ok(pattern);
    }
    if request.listed_tools.is_none() {
        return Err(ShareRequestError::ToolsNotListed(request.server.clone()));
    }
    if listed.clone().any(|tool| pattern.matches(tool)) {
        Ok(pattern)
    } else {
        Err(ShareRequestError::UnknownTool {
            suggestion: pattern.suggest(&request.server, listed),
            server: request.server.clone(),
            pattern: typed.to_owned(),
        })
    }
}
