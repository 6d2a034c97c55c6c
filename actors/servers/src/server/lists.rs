//! What a server offers, fetched page by page (MCP-030). What cannot be had costs the rest nothing.

mod fetching;
pub(super) mod missing;
mod offering;

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use futures_util::future::join_all;
use mgp_engine::policy::pins::PinMode;
use mgp_engine::tools::catalog::freshness::Freshness;
use mgp_engine::tools::catalog::{ListKind, ServerOffer};
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, quoted};
use serde_json::value::RawValue;

use crate::link::{Link, List, code};
use mgp_callers::exchange::Flag;
use mgp_policy::pins::PinsHandle;
use mgp_runtime::task;

/// Pages fetched of one list; a server that always names a next page ends here.
const MAX_PAGES: usize = 1_000;
/// How much longer than for the first list the others are waited for. What is slower comes when it is
/// asked for again.
const SLOWER: Duration = Duration::from_secs(2);
/// Definitions taken of one list; the engine keeps no more.
const MAX_ITEMS: usize = 10_000;

/// Freshly fetched lists, read and compiled.
#[derive(Debug)]
pub struct Fresh {
    offer: ServerOffer,
    kinds: Vec<ListKind>,
    /// What was odd about them.
    pub notes: Vec<String>,
    /// Of each list that was asked for, why it could not be had to its end, if so.
    pub(super) asked: Vec<(ListKind, Option<String>)>,
}

impl Fresh {
    /// None.
    pub(super) fn none(before: ServerOffer) -> Self {
        Self {
            offer: before,
            kinds: Vec::new(),
            notes: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Which lists were fetched.
    pub(super) fn kinds(&self) -> &[ListKind] {
        &self.kinds
    }

    /// The offer with these lists in the place of its old ones.
    #[must_use]
    pub fn over(&self, offer: ServerOffer) -> ServerOffer {
        let kinds = self.kinds.iter();
        kinds.fold(offer, |offer, kind| offer.taking(*kind, &self.offer))
    }
}

/// Holds tools against their pins before anybody sees them.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) pins: PinsHandle,
    pub(super) mode: PinMode,
}

/// One list, all its pages together.
#[derive(Debug)]
struct Whole {
    kind: ListKind,
    definitions: Vec<ByteString>,
    /// How long it may be kept, where the server's era says so.
    freshness: Option<Freshness>,
    notes: Vec<String>,
    /// What kept the rest of it from coming.
    gap: Option<ListGap>,
}

/// Why a list is not whole.
#[derive(Debug)]
struct ListGap {
    why: String,
    /// The server knows no such list: what it had of it in an earlier life is gone.
    unknown: bool,
}

/// Freshly fetched lists: definitions as the server sent them.
#[derive(Debug)]
pub(super) struct Lists(Vec<Whole>);

impl Lists {
    /// Everything the server says it has; what is as in `before` is not compiled anew. A list that
    /// cannot be had is left out, and a slow one is not waited for once the first is there.
    ///
    /// # Errors
    /// In words, why there is not one list of those it says it has.
    pub(super) async fn fetch(
        link: &Arc<Link>,
        before: ServerOffer,
        watch: &Watch,
    ) -> Result<Fresh, String> {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        let lists = [List::Tools, List::Prompts, List::Resources];
        let offered = lists.into_iter().filter(|list| offered(can, *list));
        let wanted: Vec<_> = offered.flat_map(kinds).collect();
        let first = Flag::default();
        let asked = wanted.iter().enumerate().map(|(at, (kind, method))| {
            let first = &first;
            async move {
                let whole = Whole::fetch(link, *kind, method);
                if at == 0 {
                    let whole = whole.await;
                    first.raise();
                    return whole;
                }
                tokio::select! {
                    whole = whole => whole,
                    () = async { first.raised().await; tokio::time::sleep(SLOWER).await } => {
                        Whole::without(*kind, ListGap::of(method, "no answer yet"))
                    }
                }
            }
        });
        let mut all = join_all(asked).await;
        let mut main = all.iter().filter(|whole| whole.kind != ListKind::Templates);
        if let Some(gap) = main.clone().find_map(|whole| whole.gap.as_ref())
            && main.all(|whole| whole.gap.is_some())
        {
            return Err(gap.why.clone());
        }
        let none = lists.into_iter().filter(|list| !self::offered(can, *list));
        all.extend(none.flat_map(kinds).map(|(kind, _)| Whole::none(*kind)));
        Self(all).read(before, watch).await
    }

    /// One list again; it stays as it was when it cannot be had.
    pub(super) async fn fetch_one(
        link: &Arc<Link>,
        list: List,
        before: ServerOffer,
        watch: &Watch,
    ) -> Fresh {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        let fetched = kinds(list).iter().map(|(kind, method)| async move {
            match offered(can, list) {
                true => Whole::fetch(link, *kind, method).await,
                false => Whole::none(*kind),
            }
        });
        let lists = Self(join_all(fetched).await);
        let read = lists.read(before.clone(), watch).await;
        read.unwrap_or_else(|why| Fresh {
            offer: before,
            kinds: Vec::new(),
            notes: vec![why],
            asked: Vec::new(),
        })
    }

    /// Schemas take their time to compile, and pins lie on the disk, so this is no work for the
    /// threads that carry calls.
    async fn read(self, before: ServerOffer, watch: &Watch) -> Result<Fresh, String> {
        let (mut asked, mut notes) = (Vec::new(), Vec::new());
        let mut lists = Vec::new();
        for mut whole in self.0 {
            notes.append(&mut whole.notes);
            let why = whole.gap.as_ref().map(|gap| gap.why.clone());
            // Many servers offer resources and know no templates.
            let usual = whole.kind == ListKind::Templates && whole.is_unknown();
            asked.push((whole.kind, why.filter(|_| !usual)));
            lists.extend(whole.counts_after(&before).then_some(whole));
        }
        let kinds: Vec<ListKind> = lists.iter().map(|list| list.kind).collect();
        let (watch, tools) = (watch.clone(), kinds.contains(&ListKind::Tools));
        let reading = task::blocking("lists of a server", move || {
            let offer = lists.iter().fold(before, |offer, list| {
                let offer = offer.with(list.kind, &list.definitions);
                match list.freshness {
                    Some(freshness) => offer.fresh(list.kind, freshness),
                    None => offer,
                }
            });
            if tools {
                watch.pins.see(offer.server(), offer.tools(), watch.mode)?;
            }
            Ok(offer)
        });
        let offer: Result<ServerOffer, String> = reading
            .await
            .unwrap_or_else(|broken| Err(broken.to_string()));
        Ok(Fresh {
            offer: offer?,
            kinds,
            notes,
            asked,
        })
    }
}

impl ListGap {
    fn of(method: &str, why: impl std::fmt::Display) -> Self {
        Self {
            why: format!("{method}: {why}"),
            unknown: false,
        }
    }

    /// A server's own error is said in its words, without the braces around them.
    fn refused(method: &str, refusal: &Refusal) -> Self {
        let Refusal::Peer(error) = refusal else {
            return Self::of(method, refusal);
        };
        let code = code(error.get());
        let message = member(error.get(), "message");
        let message: Option<String> = message.and_then(|text| serde_json::from_str(text).ok());
        let words = message.unwrap_or_else(|| "the server refuses".into());
        Self {
            why: match code {
                Some(code) => format!("{method}: {words} ({code})"),
                None => format!("{method}: {words}"),
            },
            unknown: code == Some(METHOD_NOT_FOUND),
        }
    }
}

impl Whole {
    fn none(kind: ListKind) -> Self {
        Self {
            kind,
            definitions: Vec::new(),
            freshness: None,
            notes: Vec::new(),
            gap: None,
        }
    }

    fn without(kind: ListKind, gap: ListGap) -> Self {
        Self {
            gap: Some(gap),
            ..Self::none(kind)
        }
    }

    fn is_unknown(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.unknown)
    }

    /// Whether it takes the place of the list before it: one with a gap only where there was none, or
    /// where there is to be none any more.
    fn counts_after(&self, before: &ServerOffer) -> bool {
        self.gap.is_none() || self.is_unknown() || before.count(self.kind) == 0
    }

    /// All pages, as far as they come.
    async fn fetch(link: &Arc<Link>, kind: ListKind, method: &str) -> Self {
        let mut whole = Self::none(kind);
        whole.gap = whole.pages(link, method).await.err();
        whole
    }

    async fn pages(&mut self, link: &Arc<Link>, method: &str) -> Result<(), ListGap> {
        let mut cursor = None::<String>;
        for _ in 0..MAX_PAGES {
            let params = cursor
                .as_ref()
                .map(|c| format!(r#"{{"cursor":{}}}"#, quoted(c)));
            let page = link.ask(method, params.as_deref()).await;
            let page = page.map_err(|refusal| ListGap::refused(method, &refusal))?;
            let next = self.take(page).map_err(|e| ListGap::of(method, e))?;
            if link.peer_in(Era::Modern).is_none() {
                self.freshness = None;
            }
            if next.is_none() {
                return Ok(());
            }
            if self.definitions.len() >= MAX_ITEMS {
                self.notes.push(format!(
                    "{method}: more than {MAX_ITEMS} entries; the rest is not shown"
                ));
                return Ok(());
            }
            if next == cursor {
                self.notes.push(format!(
                    "{method}: the same nextCursor twice; the list ends there"
                ));
                return Ok(());
            }
            cursor = next;
        }
        self.notes.push(format!(
            "{method}: more than {MAX_PAGES} pages; the rest is not shown"
        ));
        Ok(())
    }
    /// Takes the definitions of one page; answers the next cursor. The whole is as fresh as its
    /// least fresh page.
    fn take(&mut self, page: bytes::Bytes) -> Result<Option<String>, String> {
        let page = ByteString::try_from(page).map_err(|_| "the answer is not UTF-8".to_owned())?;
        let key = self.kind.member();
        let list = member(&page, key).ok_or_else(|| format!("no `{key}` in the answer"))?;
        let list: Vec<&RawValue> =
            serde_json::from_str(list).map_err(|e| format!("`{key}` is no list: {e}"))?;
        let items = list.iter().map(|item| page.slice_ref(item.get()));
        self.definitions.extend(items);
        let fresh = Freshness::read(&page);
        self.freshness = Some(self.freshness.map_or(fresh, |before| before.and(fresh)));
        let next = member(&page, "nextCursor").filter(|c| *c != "null");
        Ok(next.and_then(|c| serde_json::from_str(c).ok()))
    }
}

fn kinds(list: List) -> &'static [(ListKind, &'static str)] {
    match list {
        List::Tools => &[(ListKind::Tools, "tools/list")],
        List::Prompts => &[(ListKind::Prompts, "prompts/list")],
        List::Resources => &[
            (ListKind::Resources, "resources/list"),
            (ListKind::Templates, "resources/templates/list"),
        ],
    }
}

fn offered(can: ServerCapabilities, list: List) -> bool {
    match list {
        List::Tools => can.tools,
        List::Prompts => can.prompts,
        List::Resources => can.resources,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mgp_engine::tools::catalog::freshness::Scope;

    use super::*;

    /// SEP-2549: the pages of a list may be kept as long as the one that may be kept the shortest.
    #[test]
    fn a_list_is_as_fresh_as_its_least_fresh_page() {
        let mut whole = Whole::none(ListKind::Tools);
        let pages = [
            r#"{"tools":[{"name":"a"}],"ttlMs":9000,"cacheScope":"public","nextCursor":""}"#,
            r#"{"tools":[{"name":"b"}],"ttlMs":4000,"cacheScope":"private"}"#,
        ];
        let next = pages.map(|page| whole.take(Bytes::from_static(page.as_bytes())).unwrap());
        assert_eq!(next, [Some(String::new()), None]);
        assert_eq!(whole.definitions, [r#"{"name":"a"}"#, r#"{"name":"b"}"#]);
        let (ttl_ms, scope) = (4000, Scope::Private);
        assert_eq!(whole.freshness, Some(Freshness { ttl_ms, scope }));
    }
}
