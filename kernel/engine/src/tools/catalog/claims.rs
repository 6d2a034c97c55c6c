//! Which servers may own a name that no published list has.
//!
//! A server that has not published its lists yet, or is stopped or parked, still owns items. A caller that names one waits
//! for the server or gets its status; a caller without access gets the same error as for an unknown name.

use std::borrow::Cow;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::item::Definition;
use super::{CatalogView, ListKind, ServerOffer};
use crate::tool_names::{self, ToolNameForm};
use crate::tools::uris;

/// A name in a request.
#[derive(Clone, Copy, Debug)]
pub struct NamedItem<'a> {
    /// The view of the request.
    pub view: &'a CatalogView,
    /// The kind of item.
    pub kind: ListKind,
    /// A name, a URI or a `uriTemplate`.
    pub name: &'a str,
}

/// The possibility that a name belongs to a server that publishes nothing at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameClaim<'a> {
    /// The server's own name, if the name contains it or an earlier list had it.
    pub own_name: Option<Cow<'a, str>>,
    /// Whether the name identifies the server, by its form or by the endpoint.
    pub is_qualified: bool,
    /// Whether the server's last list had it; `None` if unknown.
    pub was_offered: Option<bool>,
}

/// Whether a server that publishes nothing will become available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It starts for the first time; its lists are unknown.
    FirstStart,
    /// It will start without an order.
    Expected,
    /// It will not.
    Unavailable,
}

/// How a request for a claimed name continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOutcome {
    /// Wait for the server.
    pub should_wait: bool,
    /// Report the server's status instead of an unknown name.
    pub should_report_status: bool,
}

impl<'a> NamedItem<'a> {
    /// Whether the name identifies this server.
    #[must_use]
    pub fn is_qualified_for(&self, server: &ServerId) -> bool {
        match (self.view, self.kind) {
            (CatalogView::One(only), _) => only == server,
            (CatalogView::All | CatalogView::Set(_), ListKind::Tools | ListKind::Prompts) => {
                tool_names::parse(server, self.name).is_some()
            }
            (CatalogView::All | CatalogView::Set(_), ListKind::Resources | ListKind::Templates) => {
                self.unwrap_uri(server).is_some()
            }
        }
    }

    /// The server's claim to the name. `last` is its last offer, `None` before the first one.
    #[must_use]
    pub fn claim(&self, server: &ServerId, last: Option<&ServerOffer>) -> Option<NameClaim<'a>> {
        match (self.view, self.kind) {
            (CatalogView::One(only), _) if only != server => None,
            (_, ListKind::Tools) => self.claim_by_name(server, last.map(|last| &*last.tools.items)),
            (_, ListKind::Prompts) => {
                self.claim_by_name(server, last.map(|last| &*last.prompts.items))
            }
            (_, ListKind::Resources | ListKind::Templates) => self.claim_by_uri(server, last),
        }
    }

    fn claim_by_name<D: Definition>(
        &self,
        server: &ServerId,
        last: Option<&[Arc<D>]>,
    ) -> Option<NameClaim<'a>> {
        let item = |name: &str| {
            let mut exposed = last?.iter().filter(|item| **item.exposed_name() == *name);
            let mut own = last?.iter().filter(|item| **item.own_name() == *name);
            exposed.next().or_else(|| own.next())
        };
        let claim = |name: &'a str, is_qualified| {
            let item = item(name);
            let own = item
                .map(|item| item.own_name())
                .filter(|own| ***own != *name);
            NameClaim {
                own_name: Some(own.map_or(Cow::Borrowed(name), |own| Cow::Owned(own.to_string()))),
                is_qualified,
                was_offered: last.map(|_| item.is_some()),
            }
        };
        if matches!(self.view, CatalogView::One(_)) {
            return Some(claim(self.name, true));
        }
        match tool_names::parse(server, self.name) {
            Some(ToolNameForm::Plain(own)) => Some(claim(own, true)),
            Some(ToolNameForm::Hashed) => {
                let mut items = last.into_iter().flatten();
                let item = items.find(|item| **item.merged_name() == *self.name);
                Some(NameClaim {
                    own_name: item.map(|item| Cow::Owned(item.own_name().to_string())),
                    is_qualified: true,
                    was_offered: last.map(|_| item.is_some()),
                })
            }
            None if tool_names::is_qualified(self.name) => None,
            None => Some(claim(self.name, false)).filter(|bare| bare.was_offered != Some(false)),
        }
    }

    /// A server may serve URIs that it does not list, so a missing entry does not rule out a claim.
    fn claim_by_uri(&self, server: &ServerId, last: Option<&ServerOffer>) -> Option<NameClaim<'a>> {
        let own = match self.view {
            CatalogView::One(_) => Some(Cow::Borrowed(self.name)),
            CatalogView::All | CatalogView::Set(_) => self.unwrap_uri(server),
        };
        if own.is_some() {
            return Some(NameClaim {
                own_name: own,
                is_qualified: true,
                was_offered: None,
            });
        }
        if uris::is_wrapped(self.name) {
            return None;
        }
        let offered = last.map(|last| last.offers_item(self.kind, self.name));
        (offered != Some(false)).then_some(NameClaim {
            own_name: Some(Cow::Borrowed(self.name)),
            is_qualified: false,
            was_offered: offered,
        })
    }

    fn unwrap_uri(&self, server: &ServerId) -> Option<Cow<'a, str>> {
        let (owner, own) = uris::unwrap(self.name)?;
        (owner == server.as_str()).then_some(own)
    }
}

impl ServerOffer {
    /// Whether it has an item with this own name; for a URI, also by a template.
    #[must_use]
    pub fn offers_item(&self, kind: ListKind, own: &str) -> bool {
        match kind {
            ListKind::Tools => {
                let mut tools = self.tools.items.iter();
                tools.any(|it| *it.own_name == *own || *it.exposed_name == *own)
            }
            ListKind::Prompts => self.prompts.items.iter().any(|it| *it.own_name == *own),
            ListKind::Resources | ListKind::Templates => {
                let mut templates = self.templates.items.iter();
                self.resources.items.iter().any(|it| *it.uri == *own)
                    || templates.any(|it| *it.uri_template == *own || it.template.matches(own))
            }
        }
    }
}

impl NameClaim<'_> {
    /// Decides about a request. `server_allowed`: the caller may use the server as a whole; `item_allowed`: it may use the
    /// named item, if the own name is known.
    ///
    /// A denied item of an allowed server is treated like one that the server may not have.
    #[must_use]
    pub fn evaluate(
        &self,
        availability: Availability,
        server_allowed: bool,
        item_allowed: bool,
    ) -> ClaimOutcome {
        let is_allowed =
            item_allowed || server_allowed && (self.is_qualified || self.was_offered.is_none());
        let may_become_available = match availability {
            Availability::FirstStart => true,
            Availability::Expected => self.is_qualified || self.was_offered == Some(true),
            Availability::Unavailable => false,
        };
        let should_report_status = match self.was_offered {
            Some(offered) => offered && item_allowed,
            None => self.is_qualified && is_allowed,
        };
        ClaimOutcome {
            should_wait: may_become_available && is_allowed,
            should_report_status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: &str = r#"{"name":"echo","inputSchema":{"type":"object"}}"#;

    fn offer(server: &str) -> ServerOffer {
        ServerOffer::new(ServerId::new(server))
            .with_list(ListKind::Tools, &[TOOL])
            .with_list(ListKind::Resources, &[r#"{"uri":"a://b","name":"b"}"#])
            .with_list(
                ListKind::Templates,
                &[r#"{"uriTemplate":"c://{d}","name":"c"}"#],
            )
    }

    fn claim<'a>(kind: ListKind, name: &'a str, server: &str, last: bool) -> Option<NameClaim<'a>> {
        let named = NamedItem {
            view: &CatalogView::All,
            kind,
            name,
        };
        let last = last.then(|| offer(server));
        named.claim(&ServerId::new(server), last.as_ref())
    }

    #[test]
    fn a_name_is_claimed_by_its_form_or_by_its_last_owner() {
        let found = |name, last| {
            let claim = claim(ListKind::Tools, name, "it", last)?;
            Some((
                claim.own_name?.into_owned(),
                claim.is_qualified,
                claim.was_offered,
            ))
        };
        let own = |own: &str, formed, offered| Some((own.to_owned(), formed, offered));
        for name in ["it__echo", "it:echo"] {
            assert_eq!(found(name, true), own("echo", true, Some(true)));
            assert_eq!(found(name, false), own("echo", true, None));
        }
        assert_eq!(found("it__new", true), own("new", true, Some(false)));
        assert_eq!(found("echo", true), own("echo", false, Some(true)));
        assert_eq!(found("new", true), None);
        assert_eq!(found("new", false), own("new", false, None));
        for other in ["other__echo", "other:echo", "it__"] {
            assert_eq!(found(other, false), None, "{other} is no bare name");
        }
    }

    #[test]
    fn a_hashed_name_is_resolved_by_the_last_offer() {
        let shown = tool_names::visible_name(&ServerId::new("a.b"), "echo");
        let known = claim(ListKind::Tools, &shown, "a.b", true).unwrap();
        assert_eq!(
            (known.own_name.as_deref(), known.was_offered),
            (Some("echo"), Some(true))
        );
        let unknown = claim(ListKind::Tools, &shown, "a.b", false).unwrap();
        assert_eq!((unknown.own_name, unknown.was_offered), (None, None));
        assert_eq!(claim(ListKind::Tools, &shown, "it", true), None);
    }

    #[test]
    fn a_uri_is_claimed_if_wrapped_listed_or_matched() {
        let found =
            |uri, last| claim(ListKind::Resources, uri, "it", last).map(|it| it.was_offered);
        assert_eq!(found("mcpk://it/x%3A%2F%2Fy", true), Some(None));
        assert_eq!(found("mcpk://other/x%3A%2F%2Fy", false), None);
        assert_eq!(found("a://b", true), Some(Some(true)));
        assert_eq!(found("c://whatever", true), Some(Some(true)));
        assert_eq!(found("d://e", true), None);
        assert_eq!(found("d://e", false), Some(None));
    }

    /// MGP-081: in any state of the server.
    #[test]
    fn a_denied_tool_is_treated_like_an_unknown_one() {
        for outlook in [
            Availability::FirstStart,
            Availability::Expected,
            Availability::Unavailable,
        ] {
            for (open, last) in [(true, true), (true, false), (false, true), (false, false)] {
                let nothing = ClaimOutcome {
                    should_wait: false,
                    should_report_status: false,
                };
                let outcome = |name, own| {
                    let claim = claim(ListKind::Tools, name, "it", last);
                    claim.map_or(nothing, |claim| claim.evaluate(outlook, open, own))
                };
                for (denied, absent) in [("it__echo", "it__nothing"), ("echo", "nothing")] {
                    let case = format!("{denied}, {outlook:?}, open {open}, offered before {last}");
                    let denied = outcome(denied, false);
                    // Without an entry of its own, access to the server decides.
                    assert_eq!(denied, outcome(absent, open), "{case}");
                    assert!(open || denied == nothing, "{case}");
                }
            }
        }
    }

    #[test]
    fn an_allowed_caller_waits_or_gets_the_status() {
        let outcome = |outlook, name, last| {
            let claim = claim(ListKind::Tools, name, "it", last).unwrap();
            let ClaimOutcome {
                should_wait: waits,
                should_report_status: told,
            } = claim.evaluate(outlook, true, true);
            (waits, told)
        };
        for last in [true, false] {
            assert_eq!(
                outcome(Availability::Unavailable, "it__echo", last),
                (false, true)
            );
            assert_eq!(
                outcome(Availability::Expected, "it__echo", last),
                (true, true)
            );
        }
        assert_eq!(
            outcome(Availability::FirstStart, "it__echo", false),
            (true, true)
        );
        assert_eq!(
            outcome(Availability::Unavailable, "it__new", true),
            (false, false)
        );
        // Any server may own a bare name: only one without a published list is waited for.
        assert_eq!(
            outcome(Availability::FirstStart, "echo", false),
            (true, false)
        );
        assert_eq!(
            outcome(Availability::Expected, "echo", false),
            (false, false)
        );
        assert_eq!(
            outcome(Availability::Unavailable, "echo", true),
            (false, true)
        );
    }
}
