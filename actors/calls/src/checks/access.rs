//! Access control for every request to a server. To a caller, what it may not see does not exist.
//! exist.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use mgp_engine::policy::access::{
    AccessDecision, AccessLease, DenialResponse, ForeignDenial, Principal, denial_response,
};
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::{Denial, Refusal};

use crate::Context;
use crate::name_sources::NodeNaming;
use mgp_callers::request::Caller;
use mgp_policy::AccessHandle;
use mgp_runtime::time::{boottime_now, unix_ms};
use mgp_servers::link::FinalCheck;

/// A caller's right to send one request to a server: to call a tool (by the server's own name for it), or
/// to ask something that is not about a tool.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    access: &'a AccessHandle,
    nodes: &'a NodeNaming,
    principal: Principal,
    server: &'a ServerId,
    tool: Option<&'a str>,
    /// The decision, stored from the first check on.
    lease: OnceLock<AccessLease>,
    /// Whether the last check found that a condition decides about the call of a tool.
    is_conditional: AtomicBool,
    /// The answer that does not reveal that the thing exists.
    unknown: Refusal,
}

impl<'a> Admission<'a> {
    /// A right that has not been checked yet.
    pub(crate) fn new(
        cx: &'a Context,
        caller: &Caller,
        server: &'a ServerId,
        tool: Option<&'a str>,
        unknown: Refusal,
    ) -> Self {
        Self {
            access: &cx.policies.access,
            nodes: &cx.name_sources.nodes,
            principal: caller.identity(),
            server,
            tool,
            lease: OnceLock::new(),
            is_conditional: AtomicBool::new(false),
            unknown,
        }
    }
}

impl Admission<'_> {
    /// Whether the last check left the decision about a call of the tool to a condition. Requests that are not calls,
    /// such as those about the task of a call, pass without.
    pub(super) fn is_conditional(&self) -> bool {
        self.is_conditional.load(Ordering::Relaxed)
    }

    pub(super) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// An agent of another node with a valid grant gets the actual reason: it would otherwise look for a missing
    /// grant.
    fn to_refusal(&self, decision: &AccessDecision<'_>) -> Refusal {
        match decision.foreign_denial {
            Some(why @ (ForeignDenial::LeaseExpired(_) | ForeignDenial::LogsIncomplete)) => {
                let why = why.describe(|node| self.nodes.name(node), boottime_now());
                let what = match self.tool {
                    Some(tool) => format!("tool {tool} of server {}", self.server),
                    None => format!("server {}", self.server),
                };
                Refusal::ClosedByOwner(format!(
                    "{what} is closed to agents of other nodes: {why}; see `mgp cluster status` there"
                ))
            }
            Some(
                ForeignDenial::NotMember | ForeignDenial::NotGranted | ForeignDenial::NotShared,
            )
            | None => add_denial_rule(self.unknown.clone(), decision),
        }
    }
}

impl FinalCheck for Admission<'_> {
    fn recheck(&self) -> Result<(), Refusal> {
        let (table, now) = (self.access.table(), unix_ms());
        let lease = self.lease.get();
        if lease.is_some_and(|lease| table.is_lease_valid(*lease, now)) {
            // A lease is never given on a condition; one that came since ended it.
            self.is_conditional.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let decision = table.decide(&self.principal, self.server, self.tool, now);
        self.is_conditional
            .store(decision.is_conditional, Ordering::Relaxed);
        match table.lease(&decision) {
            Some(lease) => {
                self.lease.get_or_init(|| lease);
                Ok(())
            }
            None if decision.is_conditional => Ok(()),
            None => Err(self.to_refusal(&decision)),
        }
    }
}

/// Checks the caller's right now; the result checks it again right before the request is sent.
///
/// # Errors
/// `unknown`, with the rule that closes the server or the tool.
pub(crate) fn admit<'a>(
    cx: &'a Context,
    caller: &Caller,
    server: &'a ServerId,
    tool: Option<&'a str>,
    unknown: Refusal,
) -> Result<Admission<'a>, Refusal> {
    let admission = Admission::new(cx, caller, server, tool, unknown);
    admission.recheck()?;
    Ok(admission)
}

/// The refusal of a denied tool, in text the caller may read; `shown`: the tool was visible to it before.
pub(crate) fn denied_refusal(
    cx: &Context,
    caller: &Caller,
    refusal: Refusal,
    shown: bool,
) -> Refusal {
    let Refusal::Denied(denial) = refusal else {
        return refusal;
    };
    let Denial::NotGranted { tool, .. } = &*denial else {
        return Refusal::Denied(denial);
    };
    let agreed = caller.mgp.features().contains(Features::ACCESS_CONTROL);
    // A caller that does not speak MGP cannot distinguish the two.
    match denial_response(agreed, shown, cx.policies.access.should_reveal_denials()) {
        DenialResponse::Unknown => Refusal::UnknownTool(tool.clone()),
        DenialResponse::Denied => Refusal::Denied(denial),
    }
}

/// Whether this caller may call the tool, as far as access control goes.
#[must_use]
pub fn can_call(cx: &Context, who: &Principal, tool: &CatalogTool) -> bool {
    let table = cx.policies.access.table();
    table.is_allowed(who, &tool.server, Some(&tool.own_name), unix_ms())
}

/// Whether tools that are only for apps exist for this caller: its host renders apps (SEP-1865, visibility).
#[must_use]
pub(crate) fn has_apps(caller: &Caller) -> bool {
    caller.capabilities.ui || caller.operator
}

/// Whether the server as a whole is open to the caller.
pub(crate) fn is_server_open(cx: &Context, caller: &Caller, server: &ServerId) -> bool {
    let table = cx.policies.access.table();
    table.is_server_open(&caller.identity(), server, unix_ms())
}

/// Whether the caller may use this skill: it is granted to it as a tool is, and no change of it waits for the operator.
pub(crate) fn can_use_skill(
    cx: &Context,
    principal: &Principal,
    server: &ServerId,
    skill: &str,
) -> bool {
    let table = cx.policies.access.table();
    table.is_allowed(principal, server, Some(skill), unix_ms())
        && !cx.skills.pins().is_blocked(server, skill)
}

/// Whether a resource is open to the caller: with its server, or if it is a file of a skill, with that.
pub(crate) fn is_resource_open(
    cx: &Context,
    caller: &Caller,
    server: &ServerId,
    uri: &str,
) -> bool {
    match cx.skills.find_skill(server, uri) {
        Some(skill) => can_use_skill(cx, &caller.identity(), server, &skill),
        None => is_server_open(cx, caller, server),
    }
}

/// Whether the caller may know that the server exists.
pub(crate) fn can_see_server(cx: &Context, caller: &Caller, server: &ServerId) -> bool {
    let table = cx.policies.access.table();
    table.is_server_visible(&caller.identity(), server, unix_ms())
}

/// Why a server that agents of other nodes may use otherwise is closed to them at present.
#[must_use]
pub fn foreign_closure_reason(cx: &Context) -> Option<String> {
    let table = cx.policies.access.table();
    match table.foreign_lease_denial()? {
        ForeignDenial::LeaseExpired(lapsed) => {
            let name = cx.name_sources.nodes.name(lapsed.node);
            Some(lapsed.describe(&name, boottime_now()))
        }
        ForeignDenial::LogsIncomplete => {
            Some("its logs of the cluster lack entries that they held".to_owned())
        }
        ForeignDenial::NotMember | ForeignDenial::NotGranted | ForeignDenial::NotShared => None,
    }
}

/// Whether a set takes something away from the caller: then nothing leads out of it either.
pub(crate) fn is_restricted_by_set(cx: &Context, caller: &Caller) -> bool {
    let table = cx.policies.access.table();
    table.is_in_any_set(&caller.identity())
}

/// The refusal for a tool that was not granted to this caller.
pub(crate) fn not_granted_refusal(name: &str) -> Refusal {
    Refusal::Denied(Box::new(Denial::NotGranted {
        tool: name.to_owned(),
        rule: String::new(),
    }))
}

/// Adds to a refusal, for the audit log, the rule that closes the server or tool.
fn add_denial_rule(mut refusal: Refusal, decision: &AccessDecision<'_>) -> Refusal {
    if let Refusal::Denied(denial) = &mut refusal
        && let Denial::NotGranted { rule, .. } = &mut **denial
    {
        *rule = decision.describe_rule();
    }
    refusal
}

/// True when this view shows something that exists and that the caller may know of.
#[must_use]
pub fn is_view_known(cx: &Context, view: &CatalogView, who: &Principal) -> bool {
    match view {
        CatalogView::All => true,
        CatalogView::Set(set) => cx.policies.access.table().can_use_set(who, set),
        CatalogView::One(id) => {
            let table = cx.policies.access.table();
            cx.servers.load().contains_key(id) && table.is_server_visible(who, id, unix_ms())
        }
    }
}
