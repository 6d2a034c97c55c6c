//! The schemas of a list's tools, read once each.

use std::collections::HashMap;
use std::ops::Range;

use super::{BadSchema, Schema};

/// A schema of a tool that is listed: it can be compiled.
#[derive(Clone, Debug)]
pub enum ToolSchema {
    /// It is compiled.
    Compiled(Schema),
    /// Where its text stands in the definition: it is compiled when it is needed.
    OnDemand(Range<u32>),
}

/// Reads the schemas of one list. Tools that have the same one share it.
#[derive(Debug)]
pub(crate) struct SchemaReader {
    keeps_compiled: bool,
    /// By use and text; none where the compiled schema is not kept. Bounded by the list.
    known: HashMap<(bool, [u8; blake3::OUT_LEN]), Option<Schema>>,
}

impl SchemaReader {
    /// Reads schemas, and `keeps` them compiled or only finds out whether they can be.
    #[must_use]
    pub(crate) fn new(keeps_compiled: bool) -> Self {
        Self {
            keeps_compiled,
            known: HashMap::new(),
        }
    }

    /// The `inputSchema` that stands there in a definition.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub(crate) fn input_schema(
        &mut self,
        definition: &str,
        at: Range<u32>,
    ) -> Result<ToolSchema, BadSchema> {
        self.read_schema(definition, at, true)
    }

    /// The `outputSchema` that stands there in a definition.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub(crate) fn output_schema(
        &mut self,
        definition: &str,
        at: Range<u32>,
    ) -> Result<ToolSchema, BadSchema> {
        self.read_schema(definition, at, false)
    }

    fn read_schema(
        &mut self,
        definition: &str,
        at: Range<u32>,
        is_input: bool,
    ) -> Result<ToolSchema, BadSchema> {
        let text = schema_text(definition, &at);
        let name = (is_input, *blake3::hash(text.as_bytes()).as_bytes());
        if let Some(known) = self.known.get(&name) {
            let kept = known.clone().map(ToolSchema::Compiled);
            return Ok(kept.unwrap_or(ToolSchema::OnDemand(at)));
        }
        let compiled = if is_input {
            Schema::compile_input(text)?
        } else {
            Schema::compile_output(text)?
        };
        let kept = Some(compiled)
            .filter(|compiled| self.keeps_compiled || compiled.memory_estimate() == 0);
        self.known.insert(name, kept.clone());
        Ok(kept.map_or(ToolSchema::OnDemand(at), ToolSchema::Compiled))
    }
}

impl ToolSchema {
    /// The compiled schema, where it is kept.
    #[must_use]
    pub fn compiled(&self) -> Option<&Schema> {
        match self {
            Self::Compiled(schema) => Some(schema),
            Self::OnDemand(_) => None,
        }
    }

    /// The text of a schema that is compiled when it is needed, out of the definition it stands in.
    #[must_use]
    pub fn text<'a>(&self, definition: &'a str) -> Option<&'a str> {
        match self {
            Self::Compiled(_) => None,
            Self::OnDemand(at) => Some(schema_text(definition, at)),
        }
    }
}

fn schema_text<'a>(definition: &'a str, at: &Range<u32>) -> &'a str {
    &definition[at.start as usize..at.end as usize]
}
