; What the names in Python code are there for. One that none of these patterns knows is read.

; Made here.
(function_definition name: (identifier) @function)
(class_definition name: (identifier) @class)
(parameters (identifier) @made)
(lambda_parameters (identifier) @made)
(default_parameter name: (identifier) @made)
(typed_default_parameter name: (identifier) @made)
(typed_parameter (identifier) @made)
(list_splat_pattern (identifier) @made)
(dictionary_splat_pattern (identifier) @made)
(assignment left: (identifier) @made)
(pattern_list (identifier) @made)
(tuple_pattern (identifier) @made)
(list_pattern (identifier) @made)
(for_statement left: (identifier) @made)
(for_in_clause left: (identifier) @made)
(named_expression name: (identifier) @made)
(as_pattern_target (identifier) @made)
(case_pattern (dotted_name . (identifier) @made .))
(as_pattern (case_pattern) (identifier) @made)
(splat_pattern (identifier) @made)
(function_definition type_parameters: (type_parameter (type (identifier) @class)))
(class_definition type_parameters: (type_parameter (type (identifier) @class)))
(type_alias_statement left: (type (identifier) @made))
(aliased_import alias: (identifier) @import)

; Neither made nor read.
(attribute attribute: (identifier) @member)
(keyword_argument name: (identifier) @word)
(keyword_pattern . (identifier) @word)
(global_statement (identifier) @global)
(nonlocal_statement (identifier) @word)
(import_statement (dotted_name (identifier) @import))
(import_statement (aliased_import name: (dotted_name (identifier) @import)))
(import_from_statement (dotted_name (identifier) @import))
(import_from_statement (aliased_import name: (dotted_name (identifier) @import)))
(import_from_statement (relative_import) @import)
(future_import_statement (dotted_name (identifier) @import))

; Not from strict on.
((wildcard_import) @strict
  (#set! construct "import *") (#set! hint "name what is taken from the module"))
((exec_statement) @strict
  (#set! construct "exec") (#set! hint "no code is run from text; do without it"))
((class_definition superclasses: (argument_list [(keyword_argument) (list_splat) (dictionary_splat)] @strict))
  (#set! construct "a metaclass, or a keyword of a class")
  (#set! hint "name plain classes in the parentheses, such as class Shape(abc.ABC)"))
((class_definition superclasses: (argument_list [(call) (subscript) (conditional_expression) (boolean_operator)] @strict))
  (#set! construct "a base class that is computed") (#set! hint "name plain classes in the parentheses"))
((class_pattern (dotted_name) @_class (case_pattern) @strict)
  (#not-any-of? @_class "bool" "bytes" "dict" "float" "int" "list" "set" "str" "tuple")
  (#set! construct "case with members of a class")
  (#set! hint "match the class alone, as in case Point(): or case int() as n, and read its members by name"))
((call function: (identifier) @_type arguments: (argument_list . (_) . (_))) @strict
  (#eq? @_type "type") (#set! construct "type with several arguments") (#set! hint "write the class out"))
((call function: (identifier) @_type
  arguments: (argument_list (call function: (identifier) @_again))) @strict
  (#eq? @_type "type") (#eq? @_again "type")
  (#set! construct "type of a type") (#set! hint "name the class"))
