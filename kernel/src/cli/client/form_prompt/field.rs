//! A field of a form, or an argument of a tool: its prompt, and the parser of its input.

use serde_json::{Map, Value};

use crate::cli::text_format::first_line;

/// A property of `requestedSchema`, or of a tool's `inputSchema`.
pub(in crate::cli) struct FormField<'f> {
    pub(in crate::cli) name: &'f str,
    schema: &'f Value,
    required: bool,
    /// Prompts with its name instead of its title, as on the command line.
    label_by_name: bool,
}

/// A possible value, and its title.
struct Choice<'f> {
    value: &'f Value,
    title: String,
}

impl Choice<'_> {
    /// The value as typed.
    fn input_text(&self) -> String {
        scalar_text(self.value)
    }
}

fn scalar_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The fields in the order of the form.
pub(in crate::cli) fn fields(form: &Value) -> impl Iterator<Item = FormField<'_>> {
    let required = |name: &str| {
        let names = form["required"].as_array();
        names.is_some_and(|names| names.iter().any(|n| n == name))
    };
    let properties = form["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(move |(name, schema)| FormField {
            name,
            schema,
            required: required(name),
            label_by_name: false,
        })
}

/// The required arguments that `given` lacks, in the order of the schema.
pub(in crate::cli) fn missing_arguments<'f>(
    schema: &'f Value,
    given: &'f Map<String, Value>,
) -> Vec<FormField<'f>> {
    let properties = schema["properties"].as_object();
    let names = schema["required"].as_array().into_iter().flatten();
    let names = names.filter_map(Value::as_str);
    let mut names: Vec<_> = names.filter(|name| !given.contains_key(*name)).collect();
    let place = |name: &str| properties.and_then(|p| p.keys().position(|key| key == name));
    names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
    names.dedup();
    let field = |name| FormField {
        name,
        schema: properties.and_then(|p| p.get(name)).unwrap_or(&Value::Null),
        required: true,
        label_by_name: true,
    };
    names.into_iter().map(field).collect()
}

impl FormField<'_> {
    /// The text before the cursor.
    pub(in crate::cli) fn prompt_text(&self) -> String {
        let title = self.schema["title"]
            .as_str()
            .filter(|_| !self.label_by_name);
        let mut prompt = first_line(title.unwrap_or(self.name), 60);
        if let Some(description) = self.schema["description"].as_str() {
            prompt += &format!(", {}", first_line(description, 80));
        }
        let shown: Vec<_> = (1..)
            .zip(self.choices())
            .map(|(at, choice)| format!("{at} {}", first_line(&choice.title, 40)))
            .collect();
        if !shown.is_empty() {
            prompt += &format!(" ({})", shown.join(", "));
        }
        prompt + &self.hint()
    }

    fn hint(&self) -> String {
        match &self.schema["default"] {
            Value::Bool(true) => " [Y/n]".into(),
            Value::Bool(false) => " [y/N]".into(),
            Value::String(default) => format!(" [{}]", first_line(default, 40)),
            Value::Null if self.json_type() == "boolean" => " (y/n)".into(),
            Value::Null if self.required => String::new(),
            Value::Null => " []".into(),
            default @ (Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                format!(" [{default}]")
            }
        }
    }

    /// The first possible type; none if the schema does not declare it simply.
    fn json_type(&self) -> &str {
        let kind = &self.schema["type"];
        let several = kind.as_array().into_iter().flatten();
        let mut several = several.filter_map(Value::as_str);
        let first = several.find(|kind| *kind != "null");
        kind.as_str().or(first).unwrap_or_default()
    }

    /// The four ways a schema can offer choices.
    fn choices(&self) -> Vec<Choice<'_>> {
        let schema = match self.json_type() {
            "array" => &self.schema["items"],
            _ => self.schema,
        };
        let list = |key: &str| schema[key].as_array().map_or(&[][..], Vec::as_slice);
        let titled = list("oneOf")
            .iter()
            .chain(list("anyOf"))
            .filter_map(|choice| {
                let value = choice.get("const")?;
                let title = choice["title"].as_str().map(str::to_owned);
                let title = title.unwrap_or_else(|| scalar_text(value));
                Some(Choice { value, title })
            });
        let names = list("enumNames")
            .iter()
            .map(Value::as_str)
            .chain(std::iter::repeat(None));
        let plain = list("enum").iter().zip(names).map(|(value, name)| {
            let title = name.map_or_else(|| scalar_text(value), str::to_owned);
            Choice { value, title }
        });
        titled.chain(plain).collect()
    }

    /// Parses the input; `None` omits the field.
    ///
    /// # Errors
    /// What to type instead.
    pub(in crate::cli) fn parse_input(&self, typed: &str) -> Result<Option<Value>, String> {
        match (typed.is_empty(), &self.schema["default"]) {
            (false, _) => self.parse_value(typed).map(Some),
            (true, Value::Null) if self.required => Err("this needs an answer".into()),
            (true, Value::Null) => Ok(None),
            (true, default) => Ok(Some(default.clone())),
        }
    }

    fn parse_value(&self, typed: &str) -> Result<Value, String> {
        let is_chosen = !self.choices().is_empty();
        match self.json_type() {
            "array" if is_chosen => {
                let parts = typed
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty());
                let chosen: Vec<_> = parts
                    .map(|part| self.parse_choice(part))
                    .collect::<Result<_, _>>()?;
                self.check_length(chosen.len(), ("minItems", "maxItems"), "choices")?;
                Ok(chosen.into())
            }
            _ if is_chosen => self.parse_choice(typed),
            "boolean" => match typed.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("y or n".into()),
            },
            "integer" => {
                let whole = typed
                    .parse::<i64>()
                    .map_err(|_| "a whole number is wanted")?;
                self.check_range(whole as f64).map(|()| whole.into())
            }
            "number" => {
                let number = typed.parse::<f64>().ok().filter(|n| n.is_finite());
                let number = number.ok_or("a number is wanted")?;
                self.check_range(number).map(|()| number.into())
            }
            "array" => {
                let list = serde_json::from_str::<Vec<Value>>(typed);
                let list = list.map_err(|_| "a list in JSON is wanted, like [\"a\", \"b\"]")?;
                self.check_length(list.len(), ("minItems", "maxItems"), "items")?;
                Ok(list.into())
            }
            "object" => {
                let object = serde_json::from_str::<Map<String, Value>>(typed);
                let object = object.map_err(|_| "an object in JSON is wanted, like {\"a\": 1}")?;
                Ok(object.into())
            }
            "" if self.label_by_name => {
                let json = serde_json::from_str::<Value>(typed).ok();
                Ok(json.unwrap_or_else(|| typed.into()))
            }
            _ => {
                let bounds = ("minLength", "maxLength");
                self.check_length(typed.chars().count(), bounds, "characters")?;
                Ok(typed.into())
            }
        }
    }

    fn parse_choice(&self, typed: &str) -> Result<Value, String> {
        let choices = self.choices();
        let number = typed
            .parse::<usize>()
            .ok()
            .and_then(|n| choices.get(n.checked_sub(1)?));
        let named = || {
            choices
                .iter()
                .find(|c| c.input_text() == typed || c.title == typed)
        };
        match named().or(number) {
            Some(choice) => Ok(choice.value.clone()),
            None => Err(format!("one of 1 to {} is wanted", choices.len())),
        }
    }

    fn check_range(&self, number: f64) -> Result<(), String> {
        let bound = |key: &str| self.schema[key].as_f64();
        match (bound("minimum"), bound("maximum")) {
            (Some(least), _) if number < least => Err(format!("at least {least}")),
            (_, Some(most)) if number > most => Err(format!("at most {most}")),
            _ => Ok(()),
        }
    }

    fn check_length(&self, count: usize, (min, max): (&str, &str), of: &str) -> Result<(), String> {
        let bound = |key: &str| self.schema[key].as_u64();
        match (bound(min), bound(max)) {
            (Some(least), _) if (count as u64) < least => Err(format!("at least {least} {of}")),
            (_, Some(most)) if count as u64 > most => Err(format!("at most {most} {of}")),
            _ => Ok(()),
        }
    }
}
