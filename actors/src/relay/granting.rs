//! `mgp/access/*` (MGP §5.4): as methods, and as tools of the kernel. For the operator, and for agents
//! that agreed to access control, as far as they may ask.

use std::sync::Arc;

use mgp_engine::doors::known::{Meant, ServerOrTool};
use mgp_engine::policy::access::{self, GrantRefusal, GrantRequest, Principal, hidden};
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp::{self, Method, tools};
use mgp_protocol::mgp::access::{
    Explain, Explanation, Grant, Granted, List, Listed, Query, Revoke, Revoked,
};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::spells;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::audited::Seen;
use super::{Relay, json};
use crate::naming::{self, Naming};
use crate::request::{Answering, Caller, Outcome, Request};
use crate::time::unix_ms;

/// The methods of this file.
const METHODS: [&str; 5] = [
    Query::METHOD,
    Grant::METHOD,
    Revoke::METHOD,
    List::METHOD,
    Explain::METHOD,
];

/// The method of that name or spelling, when it is one for this caller.
pub(super) fn method(caller: &Caller, name: &str) -> Option<&'static str> {
    let mut all = METHODS.into_iter();
    let method = all.find(|method| spells(method, name))?;
    let agreed = caller
        .mgp
        .active()
        .is_some_and(|active| active.features.contains(Features::ACCESS_CONTROL));
    (caller.operator || agreed).then_some(method)
}

impl Relay {
    /// `mgp/access/*`.
    ///
    /// # Errors
    /// [`Refusal::UnknownMethod`] for who did not agree to them; [`Refusal::Forbidden`] for who may not
    /// ask; [`Refusal::BadParams`].
    pub async fn administer(&self, request: &Request) -> Outcome {
        let unknown = || Refusal::UnknownMethod(request.method.to_string());
        let method = method(&request.caller, &request.method).ok_or_else(unknown)?;
        self.administered(request, method, request.params.as_deref())
            .await
    }

    /// The same as a tool of the kernel: the answer as structured content, and as text.
    pub(super) async fn administer_by_tool(
        &self,
        request: &Request,
        method: &str,
        arguments: Option<&RawValue>,
    ) -> Outcome {
        let arguments = arguments.map_or("{}", RawValue::get);
        let answer = self.administered(request, method, Some(arguments)).await?;
        Ok(super::structured(&request.caller, &answer))
    }

    /// Answers a call of a kernel's tool whose method is answered elsewhere.
    ///
    /// # Errors
    /// What the method can end with, or that the call cannot be written down.
    pub async fn answer_as_tool(&self, request: &Request, answer: Answering) -> Outcome {
        let seen = async |seen: Arc<Seen>| {
            let call: tools::Call<'_> = mcp::read(request.params.as_deref())?;
            let arguments = call.arguments.map(RawValue::get);
            seen.asks_for(&super::text(call.name, "name")?, request, arguments);
            Ok(super::structured(&request.caller, &answer.await?))
        };
        self.audited(request, seen).await
    }

    async fn administered(&self, request: &Request, method: &str, params: Option<&str>) -> Outcome {
        let who = request.caller.identity();
        if method == Query::METHOD {
            return self.query(&request.caller, &who, mcp::read(params)?);
        }
        // Before anything is read: what is asked wrongly is not told to who may not ask at all.
        access::may(&who, GrantRequest::Administer).map_err(refused)?;
        match method {
            Grant::METHOD => self.grant(request, who, mcp::read(params)?).await,
            Revoke::METHOD => self.revoke(request, who, mcp::read(params)?).await,
            List::METHOD => self.entries(mcp::read(params)?).await,
            Explain::METHOD => self.explain(mcp::read(params)?).await,
            other => Err(Refusal::UnknownMethod(other.to_owned())),
        }
    }

    /// To an agent that is not to know, what is denied to it and what does not exist are one and the same.
    fn query(&self, caller: &Caller, who: &Principal, mut query: Query) -> Outcome {
        if caller.operator {
            query.agent_id = agent_id(&self.naming, &query.agent_id)?;
        }
        access::may(who, GrantRequest::Query(&query.agent_id)).map_err(refused)?;
        let server = ServerId::new(query.server_id);
        let tool = query.tool_name.as_deref().filter(|tool| !tool.is_empty());
        let table = self.access.table();
        let about = Principal::Agent(AgentId::new(query.agent_id));
        let decision = table.decide(&about, &server, tool, unix_ms());
        let standing = match caller.operator {
            false if !self.is_there(&server, tool) => hidden(),
            false if !self.access.reveals() && table.pass(&decision).is_none() => hidden(),
            _ => decision.standing(),
        };
        json(&standing)
    }

    fn is_there(&self, server: &ServerId, tool: Option<&str>) -> bool {
        let view = CatalogView::One(server.clone());
        let known = self.servers.load().contains_key(server);
        let has = |tool| self.shown.load().catalog.tool(&view, tool).is_some();
        known && tool.is_none_or(has)
    }

    async fn grant(&self, request: &Request, by: Principal, mut grant: Grant) -> Outcome {
        let there = grant.yet_unknown == Some(false);
        let about = About::read(
            &self.naming,
            &grant.agent_id,
            &grant.server_id,
            grant.tool_name.as_deref(),
            there,
        )?;
        grant.agent_id = about.agent.to_string();
        let who = by.clone();
        let trace = request.trace.id.clone();
        let decided = self.access.record(by, trace, move |ledger| {
            let (grants, authority) = (ledger.grants, ledger.authority);
            let made = access::grant(&grant, &who, grants, authority, ledger.fresh, ledger.now_ms);
            made.map(|change| vec![change]).map_err(refused)
        });
        let changes = decided.await?;
        let Some(GrantChange::Grant(granted)) = changes.first() else {
            return Err(Refusal::Broken("a grant that is none".into()));
        };
        json(&Granted {
            grant_id: granted.id.to_string(),
            replaced: granted.replaces.iter().map(ToString::to_string).collect(),
            notes: about.notes,
        })
    }

    async fn revoke(&self, request: &Request, by: Principal, mut revoke: Revoke) -> Outcome {
        revoke.agent_id = agent_id(&self.naming, &revoke.agent_id)?;
        let who = by.clone();
        let trace = request.trace.id.clone();
        let decided = self.access.record(by, trace, move |ledger| {
            access::revoke(&revoke, &who, ledger.grants, ledger.authority).map_err(refused)
        });
        let changes = decided.await?;
        let revoked = changes.iter().flat_map(GrantChange::revoked);
        json(&Revoked {
            revoked: revoked.map(ToString::to_string).collect(),
        })
    }

    async fn entries(&self, mut list: List) -> Outcome {
        if let Some(agent) = &mut list.agent_id {
            *agent = agent_id(&self.naming, agent)?;
        }
        let entries = self.access.look(move |ledger| {
            access::list(ledger.grants, ledger.authority, &list, ledger.now_ms)
        });
        let entries = entries.await?;
        let known = self.naming.known();
        let unknown = entries.iter().filter_map(|entry| {
            let place = known.place(&entry.server_id, entry.tool_name.as_deref());
            let why = place.and_then(Meant::there).err()?;
            Some(format!("an entry of {}: {why}", entry.agent_id))
        });
        let notes: Vec<String> = unknown.collect();
        json(&Listed { entries, notes })
    }

    async fn explain(&self, explain: Explain) -> Outcome {
        let About {
            agent,
            place,
            notes,
        } = About::read(
            &self.naming,
            &explain.agent_id,
            &explain.server_id,
            explain.tool_name.as_deref(),
            false,
        )?;
        let explained = self.access.look(move |ledger| {
            access::explain(
                ledger.grants,
                ledger.authority,
                ledger.defaults,
                &Principal::Agent(agent),
                &place.server,
                place.tool.as_deref(),
                ledger.now_ms,
            )
        });
        json(&Explanation {
            notes,
            ..explained.await?
        })
    }
}

/// Whom and what a request is about.
struct About {
    agent: AgentId,
    place: ServerOrTool,
    /// What of it is not there.
    notes: Vec<String>,
}

impl About {
    /// Reads what a request names; with `there`, only what there is.
    fn read(
        naming: &Naming,
        agent: &str,
        server: &str,
        tool: Option<&str>,
        there: bool,
    ) -> Result<Self, Refusal> {
        let known = naming.known();
        let agent = naming::read(known.agent(agent), there)?;
        let tool = tool.filter(|tool| !tool.is_empty());
        let place = naming::read(known.place(server, tool), there)?;
        let notes = [agent.unknown, place.unknown].into_iter().flatten();
        Ok(Self {
            notes: notes.map(|unknown| unknown.to_string()).collect(),
            agent: agent.it,
            place: place.it,
        })
    }
}

/// The id of an agent that is named, whether there is one or not.
fn agent_id(naming: &Naming, name: &str) -> Result<String, Refusal> {
    let agent = naming::read(naming.known().agent(name), false)?;
    Ok(agent.it.to_string())
}

/// §14: 1000 for who may not ask, invalid params for what is not asked right.
fn refused(refused: GrantRefusal) -> Refusal {
    let words = refused.to_string();
    match refused {
        GrantRefusal::NotOperator { .. } | GrantRefusal::NotOneself { .. } => {
            Refusal::Forbidden(words)
        }
        GrantRefusal::Target(_)
        | GrantRefusal::NoTime(_)
        | GrantRefusal::Past(_)
        | GrantRefusal::Form(_)
        | GrantRefusal::TooMany => Refusal::BadParams(words),
    }
}
