//! Who may call what, on every way to a server. What a caller may not see is to it as if it did not
//! exist.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::names::canonical;
use mgp_engine::policy::access::{
    AccessDecision, AccessLease, Audience, DenialAnswer, GrantTable, Principal, told,
};
use mgp_engine::tools::catalog::cursor::BadCursor;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView, Form, ListKind, Sifted};
use mgp_engine::tools::exposure::Exposure;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp::{self, prompts, resources, tools};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::{Denial, Refusal};

use super::{Relay, finding, text};
use mgp_callers::request::Caller;
use mgp_callers::tool_cache::Names;
use mgp_policy::access::AccessHandle;
use mgp_runtime::time::unix_ms;
use mgp_servers::link::FinalCheck;
use mgp_tools::catalog::Shown;

/// Lists kept for those who do not see everything.
const LISTS_MAX: usize = 1024;
/// Bytes of them together; at either bound the oldest goes and is made again when it is asked for.
const BYTES_MAX: usize = 64 << 20;

/// FinalCheck to ask something of a server, for one request.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    access: &'a AccessHandle,
    principal: Principal,
    server: &'a ServerId,
    /// The server's own name of a tool.
    tool: Option<&'a str>,
    pass: AccessLease,
    /// What the caller reads when leave is taken back meanwhile.
    unknown: Refusal,
}

impl FinalCheck for Admitted<'_> {
    fn still(&self) -> Result<(), Refusal> {
        let (table, now) = (self.access.table(), unix_ms());
        if table.honours(self.pass, now) {
            return Ok(());
        }
        let decision = table.decide(&self.principal, self.server, self.tool, now);
        match table.pass(&decision) {
            Some(_) => Ok(()),
            None => Err(closed(self.unknown.clone(), &decision)),
        }
    }
}

impl Relay {
    /// FinalCheck for this caller to ask something of a server: to call a tool, by the server's own name
    /// for it, or anything that is not about a tool.
    ///
    /// # Errors
    /// `unknown`, which is what the caller would read if there was no such thing.
    pub(super) fn admit<'a>(
        &'a self,
        caller: &Caller,
        server: &'a ServerId,
        tool: Option<&'a str>,
        unknown: Refusal,
    ) -> Result<Admitted<'a>, Refusal> {
        let principal = caller.identity();
        let table = self.access.table();
        let decision = table.decide(&principal, server, tool, unix_ms());
        match table.pass(&decision) {
            Some(pass) => Ok(Admitted {
                access: &self.access,
                principal,
                server,
                tool,
                pass,
                unknown,
            }),
            None => Err(closed(unknown, &decision)),
        }
    }

    /// A denied tool, in the words its caller may read; `shown` when it was shown the tool before.
    pub(super) fn denied(&self, caller: &Caller, refusal: Refusal, shown: bool) -> Refusal {
        let Refusal::Denied(denial) = refusal else {
            return refusal;
        };
        let Denial::NotGranted { tool, .. } = &*denial else {
            return Refusal::Denied(denial);
        };
        let agreed = caller.mgp.features().contains(Features::ACCESS_CONTROL);
        // A caller that does not speak MGP reads the same of both.
        match told(agreed, shown, self.access.reveals()) {
            DenialAnswer::Unknown => Refusal::UnknownTool(tool.clone()),
            DenialAnswer::Denied => Refusal::Denied(denial),
        }
    }

    /// Whether this caller may call the tool, as far as access control goes.
    #[must_use]
    pub fn may_call(&self, who: &Principal, tool: &CatalogTool) -> bool {
        let table = self.access.table();
        table.admits(who, &tool.server, Some(&tool.own_name), unix_ms())
    }

    /// Whether the server as a whole is open to the caller.
    pub(super) fn opens(&self, caller: &Caller, server: &ServerId) -> bool {
        let table = self.access.table();
        table.opens(&caller.identity(), server, unix_ms())
    }

    /// Whether the caller knows of the server at all.
    pub(super) fn sees(&self, caller: &Caller, server: &ServerId) -> bool {
        let table = self.access.table();
        table.sees(&caller.identity(), server, unix_ms())
    }

    /// Whether a call that waited for its client may go on.
    ///
    /// # Errors
    /// What a new call of the same would be answered.
    pub fn still(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal> {
        let shown = self.shown.load();
        let (view, catalog) = (&caller.view, &shown.catalog);
        match method {
            "tools/call" => {
                let call: tools::Call<'_> = mcp::read(Some(params))?;
                let name = finding::meant(&call)?;
                let Some(tool) = catalog.tool(view, &name) else {
                    return Err(self.absent(caller, name));
                };
                let unknown = not_granted(&name);
                let admitted = self.admit(caller, &tool.server, Some(&tool.own_name), unknown);
                let permitted = admitted.and_then(|leave| self.permit(caller, leave, &name, tool));
                permitted
                    .map(drop)
                    .map_err(|r| self.denied(caller, r, true))
            }
            "prompts/get" => {
                let get: prompts::Get<'_> = mcp::read(Some(params))?;
                let name = text(get.name, "name")?;
                let hidden = catalog.prompt(view, &name);
                match hidden.is_some_and(|prompt| !self.opens(caller, &prompt.server)) {
                    true => Err(Refusal::UnknownPrompt(name)),
                    false => Ok(()),
                }
            }
            "resources/read" => {
                let about: resources::About<'_> = mcp::read(Some(params))?;
                self.owner_of(caller, &text(about.uri, "uri")?).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// A page of a list, as this caller may see it.
    pub(super) fn page(
        &self,
        shown: &Shown,
        caller: &Caller,
        kind: ListKind,
        cursor: Option<&str>,
    ) -> Result<Bytes, BadCursor> {
        let view = &caller.view;
        let form = Form {
            era: caller.version.era(),
            told: caller.mgp.features().contains(Features::TOOL_SECURITY),
        };
        let (table, principal) = (self.access.table(), caller.identity());
        let audience = table.audience(&principal);
        let exposure = self.exposure(shown, caller, kind);
        if audience == Audience::All && exposure == Exposure::All {
            return shown.catalog.page(view, kind, cursor, form);
        }
        let agents = &self.exposing.agents;
        let place = Place {
            named: agents
                .get_key_value(&caller.agent)
                .map(|(agent, _)| agent.clone()),
            exposure,
            catalog: shown.catalog.generation(),
            view: view.clone(),
            kind,
            form,
            audience,
        };
        let held = self.cached(caller, exposure);
        let list = match held.is_empty() {
            true => self.sifted.get(&place).or_else(|| {
                let made = Arc::new(self.sift(shown, &place, &table, &principal, &held)?);
                self.sifted.keep(place, made.clone());
                Some(made)
            }),
            // Of one session, and short: made again each time it is asked for.
            false => {
                let made = self.sift(shown, &place, &table, &principal, &held);
                made.map(Arc::new)
            }
        };
        let page = match list {
            Some(list) => list.page(cursor, form)?,
            None => shown.catalog.page(view, kind, cursor, form)?,
        };
        Ok(match cursor {
            None => self.with_meta(page, caller, exposure, form.told),
            Some(_) => page,
        })
    }

    fn sift(
        &self,
        shown: &Shown,
        place: &Place,
        table: &GrantTable,
        principal: &Principal,
        held: &Names,
    ) -> Option<Sifted> {
        let now = unix_ms();
        let cached = |server: &ServerId, tool: &str| {
            !held.is_empty() && held.contains(&*canonical(server, tool))
        };
        let showing = match &place.named {
            Some(agent) => self.exposing.of(agent),
            None => &self.exposing.general,
        };
        let lists = |server: &ServerId, tool: &str| {
            showing.lists(place.exposure, server, tool) || cached(server, tool)
        };
        let keep = |server: &ServerId, tool: Option<&str>| {
            tool.is_none_or(|tool| lists(server, tool))
                && table.admits(principal, server, tool, now)
        };
        let (whose, named) = (&place.audience, &place.named);
        let audience = format!("{whose:?} {named:?} {:?} {held:?}", place.exposure);
        let (view, kind, form) = (&place.view, place.kind, place.form);
        shown.catalog.sift(view, kind, form, &audience, keep)
    }
}

/// The tool is not for this caller.
pub(super) fn not_granted(name: &str) -> Refusal {
    Refusal::Denied(Box::new(Denial::NotGranted {
        tool: name.to_owned(),
        rule: String::new(),
    }))
}

/// The refusal of what is closed, with the rule that closes it.
fn closed(mut refusal: Refusal, decision: &AccessDecision<'_>) -> Refusal {
    if let Refusal::Denied(denial) = &mut refusal
        && let Denial::NotGranted { rule, .. } = &mut **denial
    {
        *rule = decision.rule();
    }
    refusal
}

/// Which list it is, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    catalog: u64,
    view: CatalogView,
    kind: ListKind,
    form: Form,
    audience: Audience,
    exposure: Exposure,
    /// Who has pinned tools of its own.
    named: Option<AgentId>,
}

/// Lists that were made for those who do not see everything.
#[derive(Debug, Default)]
pub struct SiftedLists(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lists: HashMap<Place, Arc<Sifted>>,
    order: VecDeque<Place>,
    bytes: usize,
}

impl SiftedLists {
    fn get(&self, place: &Place) -> Option<Arc<Sifted>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.lists.get(place).cloned()
    }

    fn keep(&self, place: Place, list: Arc<Sifted>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += list.size();
        if let Some(before) = kept.lists.insert(place.clone(), list) {
            kept.bytes -= before.size();
        } else {
            kept.order.push_back(place);
        }
        while kept.lists.len() > LISTS_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else {
                return;
            };
            if let Some(gone) = kept.lists.remove(&oldest) {
                kept.bytes -= gone.size();
            }
        }
    }
}
