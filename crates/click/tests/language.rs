//! The configuration language. Expected texts and messages are those of Click's own driver.
#![forbid(unsafe_code)]

use netbricks_click::language::text::{
    is_click_id, is_word, join_arguments, keyword, next_word, quote, split_arguments, split_words, uncomment,
    unquote,
};
use netbricks_click::language::{
    Classes, Configuration, Errors, Processing, Resolved, Shape, Source, check_ports,
    is_packet_flow_connected, parse, parse_for_text,
};
use proptest::prelude::*;

/// A few primitive classes, or any name.
struct Primitives {
    open: bool,
}

impl Classes for Primitives {
    fn known(&self, class: &str) -> bool {
        !self.open
            && ["Idle", "Null", "Discard", "Tee", "Message", "Print", "PullNull", "DriverManager"]
                .contains(&class)
    }

    fn open(&self) -> bool {
        self.open
    }
}

fn read(text: &str, parameters: &[(&str, &str)], open: bool) -> (Configuration, Vec<String>) {
    let source = Source { text, file: "f", is_expression: false };
    let parameters: Vec<_> = parameters.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let errors = Errors::collected();
    let library = |name: &str| (name == "lib").then(|| "elementclass Lib { -> Null -> }".to_owned());
    let configuration = parse(&source, &parameters, &Primitives { open }, &library, &errors);
    (configuration, errors.lines())
}

/// Parses a text without errors; gives the flat text.
#[track_caller]
fn flat(text: &str) -> String {
    let (configuration, lines) = read(text, &[], false);
    assert!(lines.is_empty(), "{lines:#?}");
    configuration.to_click()
}

/// Parses a text; gives the messages.
fn messages(text: &str) -> Vec<String> {
    read(text, &[], false).1
}

/// Parses a text without errors; gives what `click-flatten` writes.
#[track_caller]
fn written(text: &str, parameters: &[(&str, &str)], expands: bool) -> String {
    let source = Source { text, file: "f", is_expression: false };
    let parameters: Vec<_> = parameters.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let errors = Errors::collected();
    let primitives = Primitives { open: true };
    let configuration = parse_for_text(&source, &parameters, &primitives, &|_| None, expands, &errors);
    assert!(errors.lines().is_empty(), "{:#?}", errors.lines());
    configuration.to_flat_text()
}

#[test]
fn a_flat_text_names_lines_and_defines_variables() {
    // The ends of a comment's line and of one in quotes count when the next line ends.
    let text = r##"require(package "x y")
define($g 3, $h "q $g");
elementclass Inner { $a | define($z $a$g) input -> X($z, "$g", '$g', ${g[0]}, $h) // comment
  -> Deep($g) -> Null -> output }
elementclass Deep { $g | input -> D($g, $h) -> output }
s :: Source -> Inner($g) -> d :: Discard("a
b"); 
# 20 "other"
t :: Tee => ( input -> P -> output; input [1] -> [1] output ) => [1] d, d;
elementclass Both { input -> output; input -> Null -> output }
t [2] -> Both -> b :: Both -> u :: U; u -> Both -> u;
"##;
    let expected = r##"require(package "x y");

define($g 4, $h "q $g");

# 6 "f"
s :: Source;
# 6 "f"
d :: Discard("a
b");
# 20 "other"
t :: Tee;
# 20 "other"
P@8 :: P;
# 22 "other"
u :: U;
# 3 "f"
Inner@2/X@1 :: X($g$g, "\$g", '$g', $g, $h);
# 3 "f"
Inner@2/Deep@2 :: Deep($g);
# 3 "f"
Inner@2/Null@3 :: Null;
# 21 "other"
Both@9/Null@1 :: Null;
# 21 "other"
b/Null@1 :: Null;
# 21 "other"
Both@12/Null@1 :: Null;
# 29 ""
t -> P@8
    -> [1] d;
t [1] -> d;
t [2] -> u
    -> u
    -> Both@12/Null@1
    -> u;
s -> Inner@2/X@1
    -> Inner@2/Deep@2
    -> Inner@2/Null@3
    -> d;
t [2] -> Both@9/Null@1
    -> u;
Both@9/Null@1 -> b/Null@1
    -> u;
t [2] -> b/Null@1;
"##;
    assert_eq!(written(text, &[("g", "4")], false), expected);
    let values = written(text, &[("g", "4")], true);
    assert!(!values.contains("define("), "{values}");
    // A variable of a compound element has its value from around it: `$a4` is another variable.
    assert!(values.contains("Inner@2/X@1 :: X($a4, \"4\", '$g', 4, \"q 4\");\n"), "{values}");
}

#[test]
fn elements_come_in_clicks_order_and_connections_in_chains() {
    let text = r#"define($n 7)
elementclass Foo { $x, LIMIT $l, __REST__ $r |
  s :: Idle; s -> Null -> output; s [1] -> t :: Tee; t => ( -> Discard ), [1] output; }
f :: Foo(1, LIMIT 2, 3, 4);
f -> Discard;
f [1] -> Discard;
c1 :: Null -> [0] c2 :: Null -> c1;
"#;
    let expected = "Discard@2 :: Discard;
Discard@3 :: Discard;
c1 :: Null;
c2 :: Null;
f/s :: Idle;
f/Null@2 :: Null;
f/t :: Tee;
f/Discard@7 :: Discard;

f/t [1] -> Discard@3;
f/s -> f/Null@2
    -> Discard@2;
f/s [1] -> f/t
    -> f/Discard@7;
c2 -> c1
    -> c2;
";
    assert_eq!(flat(text), expected);
}

#[test]
fn overloads_match_by_arguments_and_hand_over_to_the_class_before() {
    let text = r#"
require(compact_config)
elementclass Foo {
   $a, $b | input -> Print(1) -> output
|| $a, __REST__ $b | input -> Print(2) -> output
|| $a, TWO $b, __REST__ $c | input -> Print(3) -> output
}
Idle -> Foo(A) -> f::Foo(A, TWO B)
elementclass Foo {
   $a, $b | input -> Print(4) -> output
|| ...
}
f -> Foo(A, B) -> Foo(A, B, C) -> Discard
"#;
    let expected = "require(compact_config);

Idle@1 :: Idle;
Discard@6 :: Discard;
Foo@2/Print@1 :: Print(2);
f/Print@1 :: Print(1);
Foo@4/Print@1 :: Print(4);
Foo@5/Print@1 :: Print(2);

Idle@1 -> Foo@2/Print@1
    -> f/Print@1
    -> Foo@4/Print@1
    -> Foo@5/Print@1
    -> Discard@6;
";
    assert_eq!(flat(text), expected);
}

#[test]
fn variables_are_replaced_in_quotes_defaults_and_words() {
    let text = r#"define($a $b, $b $c, $c x); define( $d ); Null($a, $d, ${a}, ${}, ${ a }, $(a), ${a[0]}, "${c}\$c", $a$a$a);
Null(// $a
 $a); Null("$a\$a"); define($e); Null($e); Null($e$e); Null(x$e); Null(${c[0x0]}, ${c[1]-z}, ${q[1]-z},${c-z});
define($q "a\"b $c"); Null("$q", $q, $$, $?, $#);
"#;
    let expected = r#"Null@1 :: Null(x, , x, ${}, x, x, x, "x\$c", xxx);
Null@2 :: Null(// $a
 x);
Null@3 :: Null("x\$a");
Null@4 :: Null($e);
Null@5 :: Null($e$e);
Null@6 :: Null(x);
Null@7 :: Null(x, , ,x);
Null@8 :: Null("\"a\\\"b x\"", "a\"b x", $$, $?, $#);

"#;
    // `${q[1]-z}` is the second word of a variable that is defined later.
    assert_eq!(flat(text), expected);
}

#[test]
fn formals_hide_outer_variables_and_belong_to_their_compound() {
    let text = "elementclass Foo { $a | elementclass Bar { $b | DriverManager($a); }
        elementclass Baz { $a | Idle; Bar($a); } Baz(outer); }
        Foo(stop);";
    let expected =
        "Foo@1/Baz@1/Idle@1 :: Idle;\nFoo@1/Baz@1/Bar@2/DriverManager@1 :: DriverManager(stop);\n\n";
    assert_eq!(flat(text), expected);
    let (configuration, _) = read(text, &[], false);
    let scope = configuration.scope_of(1).expect("each element has a scope");
    assert_eq!((scope.get("b"), scope.expand("$a-$b-$c").as_str()), (Some("outer"), "stop-outer-$c"));
}

#[test]
fn parameters_of_the_command_line_override_definitions() {
    let (configuration, lines) = read("Message($n, $m); define($n 4)", &[("n", "3"), ("m", "$n")], false);
    assert_eq!((configuration.elements[0].config.as_str(), lines.len()), ("3, 3", 0));
}

#[test]
fn groups_and_port_lists_connect_port_by_port() {
    let flat_a = flat("a, b, c, d :: Idle; a [0,1,2] => ( -> c ), ( -> b ), d;");
    assert_eq!(flat_a, flat("a, b, c, d :: Idle; a [0,1,2] => c, b, d;"));
    assert!(flat_a.ends_with("a [1] -> b;\na -> c;\na [2] -> d;\n"), "{flat_a}");
    let text = "a, b :: Idle; a -> { -> } -> b; a [1] -> { [0] -> [0] } -> [1] b; a [] => [2-4] b;";
    let expected =
        "a :: Idle;\nb :: Idle;\n\na -> b;\na [1] -> [1] b;\na -> [2] b;\na [1] -> [3] b;\na [2] -> [4] b;\n";
    assert_eq!(flat(text), expected);
    assert_eq!(
        flat("elementclass L { input -> output } Idle -> L -> L -> l::L -> Discard; a::L; a -> b::L -> a;"),
        "Idle@1 :: Idle;\nDiscard@5 :: Discard;\n\nIdle@1 -> Discard@5;\n"
    );
}

#[test]
fn configurations_keep_comments_quotes_and_data() {
    let text =
        "m :: Message(\"a\\\"b)\", 'c)d', /* ) */ e // )\n, \\<0a /* ) */ 20>); n :: Message(\"\\<29 )>\");";
    let (configuration, lines) = read(text, &[], false);
    assert!(lines.is_empty(), "{lines:?}");
    let first = "\"a\\\"b)\", 'c)d', /* ) */ e // )\n, \\<0a /* ) */ 20>";
    assert_eq!(configuration.elements[0].config, first);
    assert_eq!(configuration.elements[1].config, "\"\\<29 )>\"");
}

#[test]
fn requirements_are_kept_and_libraries_are_read_once() {
    let text =
        "require(bar, package \"x y\"); require(library lib); require(library lib); Idle -> Lib -> Discard;";
    let (configuration, lines) = read(text, &[], false);
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(
        configuration.requirements,
        [("package".into(), "bar".into()), ("package".into(), "x y".into())]
    );
    assert!(
        configuration.to_click().starts_with("require(package \"bar\", package \"x y\");\n\nIdle@1 :: Idle;")
    );
    assert_eq!(
        messages("require(library no); require(package); { require(library lib) }"),
        [
            "f:1: library 'no' not found in CLICKPATH/conf",
            "f:1: syntax error at requirement",
            "f:1: 'require library' must be used at file scope",
        ]
    );
}

#[test]
fn anonymous_names_give_way_to_declared_ones() {
    let (configuration, _) = read("Null@1 :: Null; Null; Null; Null@4 :: Null; Idle -> Null;", &[], false);
    let names: Vec<&str> = configuration.elements.iter().map(|element| element.name.as_str()).collect();
    assert_eq!(names, ["Null@1", "Null@2", "Null@3", "Null@4", "Idle@5", "Null@6"]);
    let (configuration, _) = read("Null; Null@1 :: Null; Null@2 :: Null;", &[], false);
    assert_eq!(configuration.elements[0].name, "Null@3");
}

#[test]
fn line_directives_change_landmarks() {
    let text = "# 100 \"foo.click\"\nx :: Foo;\n#line 7\ny :: Foo2;\n# 1 \"\"\nz :: Idle(\n# 55 \"q\"\n);\nw :: Foo3;\n#bad";
    assert_eq!(
        messages(text),
        [
            "foo.click:100: unknown element class 'Foo'",
            "foo.click:7: unknown element class 'Foo2'",
            "q:56: unknown element class 'Foo3'",
            "q:57: unknown preprocessor directive",
        ]
    );
}

#[test]
fn messages_about_elements_are_clicks() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "a :: Idle; a -> b; b :: Idle;\nc :: Foo;  d :: Foo;\n",
            &[
                "f:1: undeclared element 'b'",
                "f:1: class 'b' used as element name",
                "f:2: unknown element class 'Foo'",
            ],
        ),
        (
            "a :: Idle; a -> a :: Null -> Discard; Idle :: Null; x, y, z; p, q :: Idle(1); r(2), s :: Idle(3);\na(5) -> Discard;\n",
            &[
                "f:1: redeclaration of element 'a'",
                "f:1: element 'a' previously declared here",
                "f:1: class 'Idle' used as element name",
                "f:1: undeclared element 'x'",
                "f:1: undeclared element 'y'",
                "f:1: undeclared element 'z'",
                "f:1: undeclared element 'r'",
                "f:2: configuration string ignored on element reference",
            ],
        ),
        (
            "12 :: Null; a/1/b :: Null;",
            &[
                "f:1: element name '12' has all-digit component",
                "f:1: element name 'a/1/b' has all-digit component",
            ],
        ),
        (
            "Idle, ; Discard\nIdle -> -> Discard; Idle :: :: x; [0] ; a ||; } ) ... $foo provide(x);\n",
            &[
                "f:2: syntax error near '->'",
                "f:2: missing element type in declaration",
                "f:2: class 'Idle' used as element name",
                "f:2: syntax error near '::'",
                "f:2: undeclared element 'x'",
                "f:2: stranded port ignored",
                "f:2: syntax error near ';'",
                "f:2: undeclared element 'a'",
                "f:2: syntax error near '||'",
                "f:2: syntax error near '}'",
                "f:2: syntax error near ')'",
                "f:2: syntax error near '...'",
                "f:2: syntax error near 'foo'",
                "f:2: syntax error near 'provide'",
            ],
        ),
        (
            "input -> output; output -> Null; input :: Null;",
            &[
                "f:1: undeclared element 'input'",
                "f:1: undeclared element 'output'",
                "f:1: class 'input' used as element name",
            ],
        ),
        ("->Null;", &["f:1: syntax error near '->'"]),
    ];
    for (text, expected) in cases {
        assert_eq!(messages(text), expected, "{text}");
    }
}

#[test]
fn messages_about_connections_are_clicks() {
    let cases: [(&str, &[&str]); 4] = [
        ("a, b, c, d :: Idle;\na [0,1] => [0,1,2] b;\nc [] => [] d;\n", &[
            "f:2: connection mismatch: 2 outputs connected to 3 inputs",
            "f:3: at most one expandable port allowed per connection",
        ]),
        ("a, b :: Idle;\na [0,1,2] -> [0,1,2] b;\n", &["f:2: syntax error: many-to-many connections require '=>'"]),
        ("Idle [0x2] -> [a] Null; Idle [1 2] -> Null;", &[
            "f:1: syntax error: port number should be integer",
            "f:1: syntax error: expected ','",
        ]),
        ("Idle -> ( -> Null -> [1] ) -> Discard; Idle -> ( Null -> Null ); Idle -> [1] ( [0] -> Null => ( -> ) -> ) [1] -> Discard;
a :: Idle; b :: Discard; a -> ( -> , -> ) -> b;
", &[
            "f:1: '<anonymous group>' output 0 missing",
            "f:2: syntax error near ','",
            "f:2: warning: suggest 'input ->' or '[0] ->' to start connection",
            "f:1: '@2' has no output 0",
            "f:1: '@8' has no input 0",
            "f:1: '@14' input 0 unused",
            "f:1: '@14' output 0 unused",
            "f:1: '@14' has no input 1",
            "f:1: '@14' has no output 1",
        ]),
    ];
    for (text, expected) in cases {
        assert_eq!(messages(text), expected, "{text}");
    }
}

#[test]
fn messages_about_compound_elements_are_clicks() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "elementclass A { $a, KEY $b, __REST__ $c | input -> Print($a, $b, X \"$c\") -> output }\nIdle -> A(1) -> Discard;\n",
            &[
                "f:3: no match for 'A[1 argument, 1 input, 1 output]'",
                "f:1: candidates are:",
                "f:1:   A(<arg>, KEY, ...)[1 input, 1 output]",
            ],
        ),
        (
            "elementclass A { input -> Null -> [1] output }\nIdle -> A -> Discard;\ny :: A; Idle -> [2] y [3] -> Discard;\n",
            &[
                "f:1: 'A' output 0 missing",
                "f:2: 'A@2' has no output 0",
                "f:3: 'y' has no input 2",
                "f:3: 'y' has no output 3",
                "f:2: 'A@2' output 1 unused",
                "f:3: 'y' input 0 unused",
                "f:3: 'y' output 1 unused",
            ],
        ),
        (
            "elementclass A { $a, $b, $a | input -> output }
elementclass B { X $a, X $b, $c | input -> output; define($c 2); }
elementclass C { foo $a Idle; }
A(;
elementclass D { -> Null ->
",
            &[
                "f:1: parameter '$a' multiply defined",
                "f:2: repeated keyword parameter 'X' in compound element",
                "f:2: compound element parameters out of order",
                "f:2: (The correct order is '[positional], [keywords], [__REST__]'.)",
                "f:2: parameter '$c' multiply defined",
                "f:3: expected ',' or '|'",
                "f:6: expected ')'",
                "f:6: no match for 'A[1 argument, 0 inputs, 0 outputs]'",
                "f:1: candidates are:",
                "f:1:   A(<arg>, <arg>)[1 input, 1 output]",
            ],
        ),
        (
            "elementclass A { A -> Idle; input [0] => output; Null -> input; }\nA;\nIdle(] -> ) x;\n",
            &[
                "f:1: undeclared element 'A'",
                "f:1: 'A' pseudoelement 'input' may only be used as output",
                "f:3: undeclared element 'x'",
                "f:2: 'A@1' input 0 unused",
                "f:2: 'A@1' output 0 unused",
                "f:4: 'A@1/input' used as input",
            ],
        ),
        (
            "elementclass A B; elementclass ( x ;\nelementclass X { || ... }\nelementclass Y { input -> output || ... input->output }\n",
            &[
                "f:1: unknown element class 'B'",
                "f:1: expected element type name",
                "f:1: syntax error near '('",
                "f:1: undeclared element 'x'",
                "f:2: cannot extend unknown element class 'X'",
                "f:3: cannot extend unknown element class 'Y'",
                "f:3: '...' should occur last, after one or more compounds",
            ],
        ),
        (
            "define(a 2, $);",
            &[
                "f:1: bad 'define' declaration: not a variable",
                "f:1: bad 'define' declaration: not a variable",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(messages(text), expected, "{text}");
    }
}

#[test]
fn an_open_set_of_classes_takes_any_name() {
    let text = "elementclass Foo {\n   A :: AA -> B;\n}\nA :: Idle2;\nc :: C -> D;";
    let (configuration, lines) = read(text, &[], true);
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(configuration.to_click(), "A :: Idle2;\nc :: C;\nD@3 :: D;\n\nc -> D@3;\n");
    let lines = read("elementclass Foo {\n   A -> B;\n}\nA :: Idle;", &[], true).1;
    assert_eq!(lines, ["f:4: class 'A' used as element name"]);
}

#[test]
fn compound_elements_without_end_are_an_error() {
    let doubled: String =
        (0..60).map(|n| format!("elementclass A{} {{ input -> A{n} -> A{n} -> output }}\n", n + 1)).collect();
    let lines =
        messages(&format!("elementclass A0 {{ input -> Null -> output }}\n{doubled}Idle -> A60 -> Discard;"));
    assert_eq!(lines, ["f:62: compound elements expand to too many elements"]);
    let chain: String =
        (0..1000).map(|n| format!("elementclass A{} {{ input -> A{n} -> output }}\n", n + 1)).collect();
    let lines =
        messages(&format!("elementclass A0 {{ input -> Null -> output }}\n{chain}Idle -> A1000 -> Discard;"));
    assert_eq!(lines[0], "f:802: maximum compound element nesting depth exceeded");
    assert_eq!(messages(&"{".repeat(1000))[0], "f:1: maximum compound element nesting depth exceeded");
    assert_eq!(messages(&"(".repeat(1000))[0], "f:1: maximum element group nesting depth exceeded");
    let values: String = (0..12).map(|n| format!("$v{n} {}, ", format!("$v{}", n + 1).repeat(200))).collect();
    let lines = messages(&format!("define({values}$v12 xx); Idle($v0); Idle($v0)"));
    assert_eq!(lines, ["f:1: compound elements expand to too many elements"]);
}

#[test]
fn contexts_print_their_heading_once_and_indent() {
    let errors = Errors::collected();
    errors.within("a:1", "While configuring 'm :: Message':", |errors| {
        errors.error("too many\narguments");
        errors.warning_at("b:2", "odd\nindeed");
        errors.within("", "candidates are:", |errors| errors.message_at("c:3", "x"));
    });
    errors.within("a:1", "never printed", |_| ());
    errors.error_at("d:", "last");
    assert_eq!(
        errors.lines(),
        [
            "a:1: While configuring 'm :: Message':",
            "  too many",
            "  arguments",
            "b:2:   warning: odd",
            "b:2:   warning: indeed",
            "c:3:   candidates are:",
            "c:3:     x",
            "d: last",
        ]
    );
    assert_eq!((errors.count(), errors.warnings()), (2, 1));
}

#[test]
fn arguments_and_words_are_split_outside_quotes_and_comments() {
    assert_eq!(split_arguments("a, b, c"), ["a", "b", "c"]);
    assert_eq!(split_arguments("  a /*?*/ b,  c, "), ["a b", "c"]);
    assert_eq!(split_arguments("\"x, y\" // ?"), ["\"x, y\""]);
    assert_eq!(split_arguments(",,"), ["", ""]);
    assert!(split_arguments(" /* */ ").is_empty() && split_arguments("").is_empty());
    assert_eq!(join_arguments(&["a".into(), "b c".into()]), "a, b c");
    assert_eq!(split_words("a  b, c"), ["a", "b,", "c"]);
    assert_eq!(split_words("  'a /*?*/ b'c"), ["'a /*?*/ b'c"]);
    assert_eq!(next_word("  ab /* c */ d e "), ("ab".to_owned(), "d e "));
    assert_eq!(uncomment("  a /* Comment */       b  "), "a b");
    assert_eq!(uncomment("  a   b  "), "a   b");
    assert_eq!(keyword("LIMIT  3 4"), Some(("LIMIT", "3 4")));
    assert_eq!(keyword("a/b 3"), None);
    assert!(is_word("a/b$") && !is_word("a b") && !is_word("") && !is_word("a,"));
    assert!(is_click_id("a/b@1_") && !is_click_id("/a") && !is_click_id("a//b") && !is_click_id(""));
}

#[test]
fn quotes_come_off_and_go_on() {
    assert_eq!(unquote("\"\\n\" abc /* 123 */ '/* def */'"), b"\n abc /* def */");
    assert_eq!(unquote("\\<48656c6C 6f 2 /* And finally */ 1>"), b"Hello!");
    assert_eq!(unquote("\"\\x41\\101\\a\\\n\\$\\q\""), b"AA\x07$q");
    assert_eq!(unquote("a\\n'b\\n'"), b"a\\nb\\n");
    assert_eq!(quote(b"a\"$\\\t\n\xff", false), "\"a\\\"\\$\\\\\\t\\n\\377\"");
    assert_eq!(quote(b"a\nb", true), "\"a\nb\"");
    assert_eq!(quote(b"", false), "\"\"");
}

fn shape(class: &str) -> Shape<'static> {
    let (ports, processing) = match class {
        "Source" => ("0/1", "h"),
        "Queue" => ("1/1", "h/l"),
        "Null" => ("1/1", "a/a"),
        "Tee" => ("1/1-", "h/h"),
        "Discard" => ("1/0", "a"),
        "PullNull" => ("1/1", "l"),
        "Switch" => ("1/=+", "h"),
        _ => ("-/-", "a"),
    };
    Shape { ports, processing, flow: "x/x" }
}

fn ports_of(text: &str) -> (Resolved, Vec<String>) {
    let (configuration, lines) = read(text, &[], true);
    assert!(lines.is_empty(), "{lines:?}");
    let errors = Errors::collected();
    let resolved = check_ports(&configuration, &|at| shape(&configuration.elements[at].class), &errors);
    (resolved, errors.lines())
}

#[test]
fn push_and_pull_spread_through_agnostic_elements() {
    let (resolved, lines) =
        ports_of("n :: Null; Source -> Queue -> n -> Discard; Source -> Null -> Discard;");
    assert!(lines.is_empty(), "{lines:?}");
    let (push, pull) = (Processing::Push, Processing::Pull);
    assert_eq!(resolved.inputs, [vec![pull], vec![], vec![push], vec![pull], vec![], vec![push], vec![push]]);
    assert_eq!(
        resolved.outputs,
        [vec![pull], vec![push], vec![pull], vec![], vec![push], vec![push], vec![]]
    );
    // A chain that is declared backwards needs more passes than are made in Click's order.
    let names: String = (0..500).rev().map(|n| format!("n{n} :: Null; ")).collect();
    let chain: String = (0..499).map(|n| format!("n{n} -> n{}; ", n + 1)).collect();
    let (resolved, lines) = ports_of(&format!("{names}{chain}n499 -> Discard; Source -> Queue -> n0;"));
    assert!(lines.is_empty(), "{lines:?}");
    assert!(resolved.outputs[..500].iter().all(|outputs| outputs == &[pull]));
}

#[test]
fn port_errors_are_clicks() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "i::Source -> Null -> d::Discard;\ni -> Null -> d;",
            &["f:1: illegal reuse of 'i :: Source' push output 0"],
        ),
        ("i::Source -> Null -> d::Discard;\nSource -> p::Null;", &["f:2: 'p :: Null' output 0 unused"]),
        (
            "Source -> Queue -> n :: Null -> q :: Queue -> Discard",
            &["agnostic 'n :: Null' in mixed context: pull input 0, push output 0"],
        ),
        (
            "Source -> p:: PullNull -> Discard",
            &["'Source@1 :: Source' push output 0 connected to 'p :: PullNull' pull input 0"],
        ),
        (
            "Source -> t :: Tee; t[3] -> Discard; t -> Discard",
            &["f:1: 't :: Tee' output 1 unused", "f:1: 't :: Tee' output 2 unused"],
        ),
        ("c1 :: Null -> [1]c2 :: Null -> c1", &["f:1: 'c2 :: Null' has no input 1"]),
    ];
    for (text, expected) in cases {
        assert_eq!(ports_of(text).1, expected, "{text}");
    }
    let (resolved, lines) = ports_of("Source -> s :: Switch; s -> Discard; s[1] -> Discard;");
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(resolved.outputs[1].len(), 2);
}

#[test]
fn flow_codes_match_by_letters_sets_and_numbers() {
    let cases = [
        ("x/x", 3, 5, true),
        ("x/y", 0, 0, false),
        ("xy/x", 0, 4, true),
        ("xy/x", 1, 0, false),
        ("xy/[xy]", 1, 0, true),
        ("#/#", 2, 2, true),
        ("#/#", 2, 1, false),
        ("#/[^#]", 2, 2, false),
        ("#/[^#]", 2, 1, true),
        ("[^x]/x", 0, 0, false),
        ("[ab]c/[^ab]", 0, 0, false),
        ("[ab]c/[^ab]", 1, 0, true),
        ("x", 0, 0, true),
        ("", 0, 0, true),
        ("x/", 0, 0, false),
    ];
    for (code, input, output, expected) in cases {
        assert_eq!(is_packet_flow_connected(code, input, output), expected, "{code} {input} {output}");
    }
}

fn all_of(text: &str) {
    for open in [false, true] {
        let (configuration, lines) = read(text, &[("v", "$w$v")], open);
        let flat = configuration.to_click();
        let errors = Errors::collected();
        check_ports(&configuration, &|at| shape(&configuration.elements[at].class), &errors);
        if lines.is_empty() && open {
            let (again, lines) = read(&flat, &[], true);
            assert!(lines.is_empty(), "{text}\n{flat}\n{lines:?}");
            assert_eq!(again.elements.len(), configuration.elements.len(), "{flat}");
            assert_eq!(again.connections.len(), configuration.connections.len(), "{flat}");
        }
    }
    for argument in split_arguments(text) {
        split_words(&argument);
        unquote(&argument);
        keyword(&argument);
    }
    next_word(text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        all_of(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_tokens_are_read_without_panic(tokens in proptest::collection::vec(proptest::sample::select(vec![
        "a", "b", "Null", "Idle", "input", "output", "->", "=>", "::", ",", ";", "(", ")", "[", "]", "0", "1", "-",
        "{", "}", "|", "||", "...", "$v", "$w", "${v[0]-x}", "elementclass", "require", "define", "\n# 3 \"x\"\n",
        "library lib", "\"", "'", "\\<", "//", "/*", "*/", "\n", "__REST__ $r", "é", "elementclass A {", "} A ;",
        "define($v ", "-> a ->", "( -> Null -> )",
    ]), 0..60)) {
        all_of(&tokens.join(" "));
    }

    #[test]
    fn quoted_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..60), newlines in any::<bool>()) {
        prop_assert_eq!(unquote(&quote(&bytes, newlines)), bytes);
    }

    #[test]
    fn any_code_gives_ports(code in "[0-9/=+^#x\\[\\]ahl-]{0,8}", input in 0_usize..4, output in 0_usize..4) {
        is_packet_flow_connected(&code, input, output);
        let (configuration, _) = read("a :: A -> [1] a -> b :: A; b [2] -> a;", &[], true);
        let shape = Shape { ports: &code, processing: &code, flow: &code };
        check_ports(&configuration, &|_| shape, &Errors::collected());
    }
}
