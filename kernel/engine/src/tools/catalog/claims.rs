//! Which servers a name may belong to that is in no published list.
//!
//! A server that has not said yet what it offers, or is stopped or parked, has things all the same.
//! Who names one waits for it or is told how the server stands; who may not use it learns no more than
//! of a name that is nobody's.

use std::borrow::Cow;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::item::Definition;
use super::{CatalogView, ListKind, ServerOffer};
use crate::tool_names::{self, ToolNameForm};
use crate::tools::uris::{self, WRAPPED_PREFIX};

/// A name that somebody used.
#[derive(Clone, Copy, Debug)]
pub struct NamedItem<'a> {
    /// The view it is used in.
    pub view: &'a CatalogView,
    /// The kind of thing it names.
    pub kind: ListKind,
    /// A name, a URI or a `uriTemplate`.
    pub name: &'a str,
}

/// That a name may be that of a server which publishes nothing right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameClaim<'a> {
    /// The server's own name for it, where it can be told from the name or is known from before.
    pub own_name: Option<Cow<'a, str>>,
    /// Where the name says whose it is: by its form, or by the door it is said at.
    pub is_qualified: bool,
    /// Whether the server offered it the last time; `None` when that is not known.
    pub was_offered: Option<bool>,
}

/// What is to be expected of a server that publishes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It is being started for the first time, and nobody knows what it will offer.
    FirstStart,
    /// It comes without anybody's doing.
    Expected,
    /// It does not.
    Unavailable,
}

/// What becomes of who names something of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOutcome {
    /// It is worth waiting for the server.
    pub should_wait: bool,
    /// How the server stands is told instead of that there is no such thing.
    pub should_report_status: bool,
}

impl<'a> NamedItem<'a> {
    /// Whether the name says that it is this server's.
    #[must_use]
    pub fn is_qualified_for(&self, server: &ServerId) -> bool {
        match (self.view, self.kind) {
            (CatalogView::One(one), _) => one == server,
            (CatalogView::All | CatalogView::Set(_), ListKind::Tools | ListKind::Prompts) => {
                tool_names::parse(server, self.name).is_some()
            }
            (CatalogView::All | CatalogView::Set(_), ListKind::Resources | ListKind::Templates) => {
                self.unwrap_uri(server).is_some()
            }
        }
    }

    /// What a server can claim of the name. `last` is what it offered the last time, `None` when it
    /// has offered nothing yet.
    #[must_use]
    pub fn claim(&self, server: &ServerId, last: Option<&ServerOffer>) -> Option<NameClaim<'a>> {
        match (self.view, self.kind) {
            (CatalogView::One(one), _) if one != server => None,
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
            let mut called = last?.iter().filter(|item| **item.exposed_name() == *name);
            let mut own = last?.iter().filter(|item| **item.own_name() == *name);
            called.next().or_else(|| own.next())
        };
        let named = |name: &'a str, formed| {
            let item = item(name);
            let own = item
                .map(|item| item.own_name())
                .filter(|own| ***own != *name);
            NameClaim {
                own_name: Some(own.map_or(Cow::Borrowed(name), |own| Cow::Owned(own.to_string()))),
                is_qualified: formed,
                was_offered: last.map(|_| item.is_some()),
            }
        };
        if matches!(self.view, CatalogView::One(_)) {
            return Some(named(self.name, true));
        }
        match tool_names::parse(server, self.name) {
            Some(ToolNameForm::Plain(own)) => Some(named(own, true)),
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
            None => Some(named(self.name, false)).filter(|bare| bare.was_offered != Some(false)),
        }
    }

    /// A server may know more URIs than it lists, so that it never offered one says nothing.
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
        if self.name.starts_with(WRAPPED_PREFIX) {
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
        let (whose, own) = uris::unwrap(self.name)?;
        (whose == server.as_str()).then_some(own)
    }
}

impl ServerOffer {
    /// Whether it has something of this name, as its server calls it; of a URI, also by a template.
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
    /// What becomes of who makes it. `open` says that the server as a whole is open to the caller,
    /// `own` that what it named is, where the own name is known.
    ///
    /// A thing that is denied on a server that is open is treated as one that the server may not have.
    #[must_use]
    pub fn evaluate(&self, outlook: Availability, open: bool, own: bool) -> ClaimOutcome {
        let may = own || open && (self.is_qualified || self.was_offered.is_none());
        let comes = match outlook {
            Availability::FirstStart => true,
            Availability::Expected => self.is_qualified || self.was_offered == Some(true),
            Availability::Unavailable => false,
        };
        let told = match self.was_offered {
            Some(offered) => offered && own,
            None => self.is_qualified && may,
        };
        ClaimOutcome {
            should_wait: comes && may,
            should_report_status: told,
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
    fn a_name_is_claimed_by_its_form_or_by_who_had_it() {
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
    fn a_closed_name_is_told_apart_by_what_was_offered() {
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
    fn a_uri_is_claimed_by_who_wrapped_listed_or_matches_it() {
        let found =
            |uri, last| claim(ListKind::Resources, uri, "it", last).map(|it| it.was_offered);
        assert_eq!(found("mcpk://it/x%3A%2F%2Fy", true), Some(None));
        assert_eq!(found("mcpk://other/x%3A%2F%2Fy", false), None);
        assert_eq!(found("a://b", true), Some(Some(true)));
        assert_eq!(found("c://whatever", true), Some(Some(true)));
        assert_eq!(found("d://e", true), None);
        assert_eq!(found("d://e", false), Some(None));
    }

    /// MGP-081: whatever the server's state, a tool that is denied fares as one that is not there.
    #[test]
    fn what_is_denied_fares_as_what_is_not_there() {
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
                let fares = |name, own| {
                    let claim = claim(ListKind::Tools, name, "it", last);
                    claim.map_or(nothing, |claim| claim.evaluate(outlook, open, own))
                };
                for (denied, absent) in [("it__echo", "it__nothing"), ("echo", "nothing")] {
                    let case = format!("{denied}, {outlook:?}, open {open}, offered before {last}");
                    let denied = fares(denied, false);
                    // Of a name without an entry of its own the server's openness decides.
                    assert_eq!(denied, fares(absent, open), "{case}");
                    assert!(open || denied == nothing, "{case}");
                }
            }
        }
    }

    #[test]
    fn who_may_use_it_waits_or_is_told() {
        let fares = |outlook, name, last| {
            let claim = claim(ListKind::Tools, name, "it", last).unwrap();
            let ClaimOutcome {
                should_wait: waits,
                should_report_status: told,
            } = claim.evaluate(outlook, true, true);
            (waits, told)
        };
        for last in [true, false] {
            assert_eq!(
                fares(Availability::Unavailable, "it__echo", last),
                (false, true)
            );
            assert_eq!(
                fares(Availability::Expected, "it__echo", last),
                (true, true)
            );
        }
        assert_eq!(
            fares(Availability::FirstStart, "it__echo", false),
            (true, true)
        );
        assert_eq!(
            fares(Availability::Unavailable, "it__new", true),
            (false, false)
        );
        // A bare name may be anybody's: only who has said nothing yet is waited for.
        assert_eq!(
            fares(Availability::FirstStart, "echo", false),
            (true, false)
        );
        assert_eq!(fares(Availability::Expected, "echo", false), (false, false));
        assert_eq!(
            fares(Availability::Unavailable, "echo", true),
            (false, true)
        );
    }
}
