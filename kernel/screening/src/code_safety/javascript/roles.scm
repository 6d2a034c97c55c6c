; What the names in JavaScript code are there for. An identifier that none of these patterns knows is read.

; Made here.
(variable_declarator name: (identifier) @made)
(function_declaration name: (identifier) @made)
(generator_function_declaration name: (identifier) @made)
(function_expression name: (identifier) @made)
(generator_function name: (identifier) @made)
(class_declaration name: (identifier) @made)
(class name: (identifier) @made)
(formal_parameters (identifier) @made)
(arrow_function parameter: (identifier) @made)
(catch_clause parameter: (identifier) @made)
(array_pattern (identifier) @made)
(rest_pattern (identifier) @made)
(assignment_pattern left: (identifier) @made)
(pair_pattern value: (identifier) @made)
(shorthand_property_identifier_pattern) @made
(for_in_statement left: (identifier) @made)
(assignment_expression left: (identifier) @written)
(import_clause (identifier) @import)
(namespace_import (identifier) @import)
(import_specifier (identifier) @import)

; Neither made nor read.
(export_specifier alias: (identifier) @word)
(namespace_export (identifier) @word)
(jsx_namespace_name (identifier) @word)

; At no level: it reads otherwise than it runs.
((with_statement) @always
  (#set! construct "with (") (#set! hint "its names cannot be followed; name the object"))
((html_comment) @hidden
  (#set! construct "<!--") (#set! hint "it is a comment in a script and code in a module; use //"))

; Not from strict on.
((export_statement "*" source: (_)) @strict
  (#set! construct "export *") (#set! hint "name what is exported"))
((call_expression function: (import)) @strict
  (#set! construct "import()") (#set! hint "use an import statement at the beginning"))
((debugger_statement) @strict (#set! construct "debugger") (#set! hint "leave it out"))
((pair_pattern key: (computed_property_name) @strict)
  (#set! construct "a computed key") (#set! hint "name the member, or keep what is looked up by key in a Map"))
((decorator) @strict (#set! construct "a decorator") (#set! hint "call the function by its name"))
([(jsx_element) (jsx_self_closing_element)] @strict
  (#set! construct "an element of JSX") (#set! hint "write plain JavaScript"))
