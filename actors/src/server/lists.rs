//! What a server offers, fetched page by page (MCP-030).

use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::catalog::{Kind, Offer};
use mgp_engine::freshness::Freshness;
use mgp_engine::pins::PinMode;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::splice::{member, quoted};
use serde_json::value::RawValue;

use crate::link::{Link, List};
use crate::pins::PinsHandle;

/// Pages fetched of one list; a server that always names a next page ends here.
const MAX_PAGES: usize = 1_000;
/// Definitions taken of one list; the engine keeps no more.
const MAX_ITEMS: usize = 10_000;

/// Freshly fetched lists, read and compiled.
#[derive(Debug)]
pub struct Fresh {
    offer: Offer,
    kinds: Vec<Kind>,
    /// What was odd about them.
    pub notes: Vec<String>,
}

impl Fresh {
    /// Which lists were fetched.
    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The offer with these lists in the place of its old ones.
    #[must_use]
    pub fn over(&self, offer: Offer) -> Offer {
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
    kind: Kind,
    definitions: Vec<ByteString>,
    /// How long it may be kept, where the server's era says so.
    freshness: Option<Freshness>,
}

/// Freshly fetched lists: definitions as the server sent them.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: Vec<Whole>,
    notes: Vec<String>,
}

impl Lists {
    /// Everything the server says it has; what is as in `before` is not compiled anew.
    ///
    /// # Errors
    /// In words, which list could not be fetched and why.
    pub(super) async fn fetch(
        link: &Arc<Link>,
        before: Offer,
        watch: &Watch,
    ) -> Result<Fresh, String> {
        let mut lists = Self::default();
        for list in [List::Tools, List::Prompts, List::Resources] {
            lists.fill(link, list).await?;
        }
        lists.read(before, watch).await
    }

    /// One list again; it stays as it was when it cannot be had.
    pub(super) async fn fetch_one(
        link: &Arc<Link>,
        list: List,
        before: Offer,
        watch: &Watch,
    ) -> Fresh {
        let mut lists = Self::default();
        let fetched = lists.fill(link, list).await;
        let read = match fetched {
            Ok(()) => lists.read(before.clone(), watch).await,
            Err(why) => Err(why),
        };
        read.unwrap_or_else(|why| {
            link.log.note(&why);
            Fresh {
                offer: before,
                kinds: Vec::new(),
                notes: vec![why],
            }
        })
    }

    /// Schemas take their time to compile, and pins lie on the disk, so this is no work for the
    /// threads that carry calls.
    async fn read(self, before: Offer, watch: &Watch) -> Result<Fresh, String> {
        let kinds: Vec<Kind> = self.lists.iter().map(|list| list.kind).collect();
        let Self { lists, notes } = self;
        let (watch, tools) = (watch.clone(), kinds.contains(&Kind::Tools));
        let reading = tokio::task::spawn_blocking(move || {
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
        let offer: Result<Offer, String> = reading.await.expect("reading lists does not panic");
        Ok(Fresh {
            offer: offer?,
            kinds,
            notes,
        })
    }

    async fn fill(&mut self, link: &Arc<Link>, list: List) -> Result<(), String> {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        for (kind, method) in kinds(list) {
            let mut whole = Whole {
                kind: *kind,
                definitions: Vec::new(),
                freshness: None,
            };
            if offered(can, list) {
                match self.pages(link, &mut whole, method).await {
                    Ok(()) => {}
                    // Many servers offer resources and know no templates.
                    Err(_) if *kind == Kind::Templates => whole.definitions.clear(),
                    Err(why) => return Err(why),
                }
            }
            self.lists.push(whole);
        }
        Ok(())
    }

    async fn pages(
        &mut self,
        link: &Arc<Link>,
        whole: &mut Whole,
        method: &str,
    ) -> Result<(), String> {
        let mut cursor = None::<String>;
        for _ in 0..MAX_PAGES {
            let params = cursor
                .as_ref()
                .map(|c| format!(r#"{{"cursor":{}}}"#, quoted(c)));
            let page = link
                .ask(method, params.as_deref())
                .await
                .map_err(|e| format!("{method}: {e}"))?;
            let next = whole.take(page).map_err(|e| format!("{method}: {e}"))?;
            if link.peer_in(Era::Modern).is_none() {
                whole.freshness = None;
            }
            if next.is_none() || whole.definitions.len() >= MAX_ITEMS {
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
}

impl Whole {
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

fn kinds(list: List) -> &'static [(Kind, &'static str)] {
    match list {
        List::Tools => &[(Kind::Tools, "tools/list")],
        List::Prompts => &[(Kind::Prompts, "prompts/list")],
        List::Resources => &[
            (Kind::Resources, "resources/list"),
            (Kind::Templates, "resources/templates/list"),
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
    use mgp_engine::freshness::Scope;

    use super::*;

    /// SEP-2549: the pages of a list may be kept as long as the one that may be kept the shortest.
    #[test]
    fn a_list_is_as_fresh_as_its_least_fresh_page() {
        let mut whole = Whole {
            kind: Kind::Tools,
            definitions: Vec::new(),
            freshness: None,
        };
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
