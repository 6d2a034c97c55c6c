//! The operator's overrides of tools: another name, another description, or hidden (decision 52).
//!
//! Checks still use the server's own definition. Calls to the server, grants, pins and records still use the own name.

use std::collections::HashSet;
use std::sync::Arc;

use mgp_json::{Splice, member, members, quote};

use super::ServerOffer;
use super::item::{CatalogTool, rename_member};
use crate::policy::requirements::ToolRule;

impl ServerOffer {
    /// Applies the operator's overrides. Also describes those that could not be applied.
    #[must_use]
    pub fn with_overrides(mut self) -> (Self, Vec<String>) {
        let rules = Arc::clone(&self.requirement_inputs().rules);
        let rule = |tool: &CatalogTool| {
            rules
                .for_tool(&tool.own_name)
                .filter(|rule| rule.has_presentation())
        };
        let tools = self.shared_tools();
        let is_hidden = |tool: &CatalogTool| rules.is_hidden(&tool.own_name);
        if !tools
            .iter()
            .any(|tool| rule(tool).is_some() || is_hidden(tool))
        {
            return (self, Vec::new());
        }
        // No override may take the own name of another tool.
        let mut taken: HashSet<Arc<str>> = tools.iter().map(|tool| tool.own_name.clone()).collect();
        let mut rejected = Vec::new();
        let mut visible = Vec::with_capacity(tools.len());
        for tool in &*tools {
            match rule(tool) {
                _ if is_hidden(tool) => {}
                None => visible.push(Arc::clone(tool)),
                Some(rule) => {
                    let wanted = rule.name.as_deref().filter(|name| *name != &*tool.own_name);
                    let free = wanted.filter(|name| taken.insert((*name).into()));
                    if let (Some(wanted), None) = (wanted, free) {
                        rejected.push(format!(
                            "tool {} keeps its name: the server has another one called {wanted}",
                            tool.own_name
                        ));
                    }
                    visible.push(Arc::new(tool.with_rule(free, rule)));
                }
            }
        }
        self.tools.items = visible.into();
        (self, rejected)
    }
}

impl CatalogTool {
    fn with_rule(&self, name: Option<&str>, rule: &ToolRule) -> Self {
        let mut text = Arc::clone(&self.raw);
        if let Some(name) = name {
            text = rename_member(&text, "name", name);
        }
        if let Some(words) = &rule.description {
            text = with_description(&text, words);
        }
        self.with_override(name, text)
    }
}

/// Replaces the description. A repeated member is replaced everywhere, because parsers take different ones.
fn with_description(raw: &str, words: &str) -> Arc<str> {
    let (mut splice, words) = (Splice::new(raw), quote(words));
    match member(raw, "description") {
        None => splice.insert_member(raw, "description", &words),
        Some(_) => {
            let all = members(raw).unwrap_or_default();
            for (_, description) in all.into_iter().filter(|(name, _)| name == "description") {
                splice.replace(description.get(), words.clone());
            }
        }
    }
    splice.finish().into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mgp_protocol::dialect::ProtocolFamily;
    use mgp_protocol::ids::ServerId;

    use super::super::cursor::CursorKey;
    use super::super::{Catalog, CatalogView, ListKind, Paging};
    use super::*;
    use crate::policy::requirements::{RequirementInputs, ToolRules};

    const ECHO: &str = r#"{"name":"echo","description":"theirs","inputSchema":{"type":"object","properties":{"a":{"type":"integer"}}},"description":"theirs, too"}"#;
    const TIME: &str = r#"{"inputSchema":{"type":"object"},"name":"time"}"#;

    fn rule(name: Option<&str>, description: Option<&str>, hidden: bool) -> ToolRule {
        ToolRule {
            name: name.map(str::to_owned),
            description: description.map(str::to_owned),
            hidden,
            ..ToolRule::default()
        }
    }

    fn offered(rules: &[(&str, ToolRule)]) -> (Catalog, Vec<String>) {
        let tools = rules
            .iter()
            .cloned()
            .map(|(tool, rule)| (tool.to_owned(), rule));
        let rules = ToolRules {
            tools: tools.collect(),
            ..ToolRules::default()
        };
        let terms = RequirementInputs {
            rules: Arc::new(rules),
            ..RequirementInputs::default()
        };
        let offer = ServerOffer::new(ServerId::new("it"));
        let offer = offer
            .with_requirements(Arc::new(terms))
            .with_list(ListKind::Tools, &[ECHO, TIME]);
        let (offer, refused) = offer.with_overrides();
        let catalog = Catalog::empty(Paging::new(CursorKey::new([1; 32])));
        (catalog.with_offers(&[Arc::new(offer)]), refused)
    }

    #[test]
    fn tools_outside_the_allowed_list_are_hidden() {
        let rules = ToolRules {
            offered: Some(["echo".to_owned()].into()),
            ..ToolRules::default()
        };
        let terms = RequirementInputs {
            rules: Arc::new(rules),
            ..RequirementInputs::default()
        };
        let offer = ServerOffer::new(ServerId::new("it")).with_requirements(Arc::new(terms));
        let (offer, refused) = offer
            .with_list(ListKind::Tools, &[ECHO, TIME])
            .with_overrides();
        let names: Vec<_> = offer
            .tools
            .items
            .iter()
            .map(|tool| &*tool.own_name)
            .collect();
        assert_eq!((names, refused), (vec!["echo"], Vec::new()));
    }

    fn page(catalog: &Catalog, view: &CatalogView) -> String {
        let page: Bytes = catalog
            .page(view, ListKind::Tools, None, ProtocolFamily::Stateless)
            .unwrap();
        String::from_utf8(page.to_vec()).unwrap()
    }

    /// Decision 52: agents use the new name; the server and the rules use the own one.
    #[test]
    fn a_renamed_tool_keeps_its_own_name_for_the_server() {
        let (catalog, refused) = offered(&[("echo", rule(Some("say"), Some("ours"), false))]);
        assert_eq!(refused, [""; 0]);
        for (view, called) in [
            (CatalogView::All, "it__say"),
            (CatalogView::One(ServerId::new("it")), "say"),
        ] {
            let text = page(&catalog, &view);
            assert!(text.contains(&format!("\"name\":\"{called}\"")), "{text}");
            assert!(
                text.contains("ours") && !text.contains("theirs") && !text.contains("echo"),
                "{text}"
            );
            let tool = catalog.tool(&view, called).unwrap();
            assert_eq!(
                (&*tool.own_name, &*tool.own_name_json),
                ("echo", "\"echo\"")
            );
            assert_eq!(tool.name_in_view(&view), called);
            assert_eq!(&*tool.raw, ECHO, "it is judged by its server's words");
            assert!(
                tool.input
                    .text(&tool.raw)
                    .is_none_or(|schema| schema.contains("integer"))
            );
        }
        // The own name still resolves.
        for name in ["it:echo", "it__echo", "it:say", "echo"] {
            assert_eq!(
                &*catalog.tool(&CatalogView::All, name).unwrap().own_name,
                "echo",
                "{name}"
            );
        }
        let (catalog, _) = offered(&[("time", rule(None, Some("of day"), false))]);
        assert!(page(&catalog, &CatalogView::All).contains("of day"));
    }

    /// Decision 52; a hidden tool has no name at all.
    #[test]
    fn an_override_cannot_take_an_own_name() {
        let both = [
            ("echo", rule(Some("time"), None, false)),
            ("time", rule(Some("echo"), None, false)),
        ];
        let (catalog, refused) = offered(&both);
        assert_eq!(refused.len(), 2, "{refused:?}");
        for (name, own) in [
            ("it__time", "time"),
            ("it__echo", "echo"),
            ("it:time", "time"),
        ] {
            assert_eq!(
                &*catalog.tool(&CatalogView::All, name).unwrap().own_name,
                own
            );
        }
        let (catalog, refused) = offered(&[("echo", rule(None, None, true))]);
        assert_eq!(refused, [""; 0]);
        for name in ["it__echo", "it:echo", "echo"] {
            assert!(catalog.tool(&CatalogView::All, name).is_none(), "{name}");
        }
        let one = CatalogView::One(ServerId::new("it"));
        assert!(catalog.tool(&one, "echo").is_none() && !page(&catalog, &one).contains("echo"));
    }
}
