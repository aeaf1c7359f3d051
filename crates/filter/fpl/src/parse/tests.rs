use super::*;
use crate::ast::Unary;

/// An expression with all its parentheses.
fn shown(expr: &Expr) -> String {
    let list = |exprs: &[Expr]| exprs.iter().map(shown).collect::<Vec<_>>().join(",");
    match &expr.kind {
        ExprKind::Number(value) => value.to_string(),
        ExprKind::Name(name, arguments) if arguments.is_empty() => name.clone(),
        ExprKind::Name(name, arguments) => format!("{name}({})", list(arguments)),
        ExprKind::Register(index) => format!("R[{}]", shown(index)),
        ExprKind::Cell(index) => format!("M[{}]", shown(index)),
        ExprKind::Bytes(unit, offset, None) => {
            format!("{}{}[{}]", sign(unit.signed), unit.bytes, shown(offset))
        }
        ExprKind::Bytes(unit, offset, Some((piece, index))) => {
            format!(
                "{}[{}].{}{}[{}]",
                unit.bytes,
                shown(offset),
                sign(piece.signed),
                piece.bits,
                shown(index)
            )
        }
        ExprKind::Field(name) => format!("PKT.{name}"),
        ExprKind::Unary(Unary::Minus, inner) => format!("-{}", shown(inner)),
        ExprKind::Unary(Unary::Complement, inner) => format!("~{}", shown(inner)),
        ExprKind::Unary(Unary::Not, inner) => format!("!{}", shown(inner)),
        ExprKind::Binary(operator, left, right) => {
            format!("({}{}{})", shown(left), operator.name(), shown(right))
        }
        ExprKind::Cast(piece, inner) => format!("{}{}({})", sign(piece.signed), piece.bits, shown(inner)),
        ExprKind::Hash(parts) => format!("HASH({})", list(&parts[..])),
        ExprKind::Extern(name, cells) => format!("EXTERN({},{})", name.text, list(&cells[..])),
    }
}

fn sign(signed: bool) -> &'static str {
    if signed { "S" } else { "U" }
}

fn first_statement(text: &str) -> StatementKind {
    match parse(text).expect(text).items.remove(0) {
        Item::Statement(statement) => statement.kind,
        other => panic!("no statement: {other:?}"),
    }
}

#[test]
fn expressions_bind_as_the_table_says() {
    for (text, expected) in [
        ("1 + 2 * 3 - 4", "((1+(2*3))-4)"),
        ("8 / 4 / 2 % 3", "(((8/4)/2)%3)"),
        ("1 << 2 + 3 >> 4", "((1<<(2+3))>>4)"),
        ("1 | 2 ^ 3 & 4 << 5", "(1|(2^(3&(4<<5))))"),
        ("1 & 2 == 3 | 4", "((1&2)==(3|4))"),
        ("1 < 2 && 3 >= 4 || 5 != 6 && 7 <= 8", "(((1<2)&&(3>=4))||((5!=6)&&(7<=8)))"),
        ("1 || 2 || 3 > 4", "((1||2)||(3>4))"),
        ("(1 < 2) == (3 < 4)", "((1<2)==(3<4))"),
        ("-1 - -~!2 + +3", "((-1--~!2)+3)"),
        ("R[1] - -M[2]", "(R[1]--M[2])"),
        ("!a(1, b) * (c())", "(!a(1,b)*c)"),
        ("PKT.B[1] + PKT.SDW[2 + 3]", "(U1[1]+S4[(2+3)])"),
        ("PKT.W[0].U4[3] | PKT.QW[R[1]].S32[0]", "(2[0].U4[3]|8[R[1]].S32[0])"),
        ("PKT.LEN / PKT.IP_SRC", "(PKT.LEN/PKT.IP_SRC)"),
        ("S8(1) + U64(2)", "(S8(1)+U64(2))"),
        ("HASH(1, 2, 3) + EXTERN(f, 4, M[5])", "(HASH(1,2,3)+EXTERN(f,4,M[5]))"),
    ] {
        let StatementKind::Return(value) = first_statement(&format!("RETURN {text};")) else {
            panic!("{text}")
        };
        assert_eq!(shown(&value), expected, "{text}");
    }
}

#[test]
fn every_assignment_is_understood() {
    for (text, expected) in [
        ("R[0] = 1;", "R[0] None 1"),
        ("MEM[R[0]] += 2;", "M[R[0]] Some(Add) 2"),
        ("M[0] -= 1;", "M[0] Some(Subtract) 1"),
        ("M[0] *= 1;", "M[0] Some(Multiply) 1"),
        ("M[0] /= 1;", "M[0] Some(Divide) 1"),
        ("M[0] %= 1;", "M[0] Some(Remainder) 1"),
        ("M[0] <<= 1;", "M[0] Some(ShiftLeft) 1"),
        ("M[0] >>= 1;", "M[0] Some(ShiftRight) 1"),
        ("M[0] &= 1;", "M[0] Some(BitAnd) 1"),
        ("M[0] ^= 1;", "M[0] Some(BitXor) 1"),
        ("M[0] |= 1;", "M[0] Some(BitOr) 1"),
        ("R[0]++;", "R[0] Some(Add) 1"),
        ("--M[1];", "M[1] Some(Subtract) 1"),
        ("PORT(2) = 3;", "PORT(2) None 3"),
    ] {
        let StatementKind::Assign(place, operator, value) = first_statement(text) else { panic!("{text}") };
        assert_eq!(format!("{} {operator:?} {}", shown(&place), shown(&value)), expected, "{text}");
    }
}

#[test]
fn blocks_end_where_they_end() {
    let text = "IF (1) THEN IF (2) THEN R[0] = 1; ELSE BREAK; FI; ELSE RETURN 3; FI";
    let StatementKind::If(test, then, otherwise) = first_statement(text) else { panic!() };
    assert_eq!((shown(&test).as_str(), then.len(), otherwise.len()), ("1", 1, 1));
    let StatementKind::If(_, inner, inner_otherwise) = &then[0].kind else { panic!() };
    assert!(matches!(inner[0].kind, StatementKind::Assign(..)));
    assert_eq!(inner_otherwise[0].kind, StatementKind::Break);
    assert!(matches!(otherwise[0].kind, StatementKind::Return(_)));

    let text = "FOR (R[1] = 2; R[1] <= PKT.LEN; R[1] -= 3) EXTERN(f, 0, 1); IF (1) THEN BREAK; FI ROF;";
    let StatementKind::For(parts) = first_statement(text) else { panic!() };
    let head =
        [&parts.register, &parts.start, &parts.tested, &parts.end, &parts.stepped, &parts.step].map(shown);
    assert_eq!(head, ["R[1]", "2", "R[1]", "PKT.LEN", "R[1]", "3"]);
    assert_eq!((parts.relation, parts.upward, parts.body.len()), (Operator::LessEqual, false, 2));
    assert!(matches!(parts.body[0].kind, StatementKind::Call(_)));
}

#[test]
fn definitions_are_understood() {
    let program =
        parse("CONST A = 1; MACRO B = A; MACRO C(x, y) = x; MACRO D() = 2; RETURN 0;").expect("a program");
    let shown: Vec<String> = program
        .items
        .iter()
        .map(|item| match item {
            Item::Constant(name, value) => format!("{}={}", name.text, shown(value)),
            Item::Macro(one) => format!("{}({})={}", one.name.text, one.parameters.len(), shown(&one.body)),
            Item::Statement(_) => "statement".into(),
        })
        .collect();
    assert_eq!(shown, ["A=1", "B(0)=A", "C(2)=x", "D(0)=2", "statement"]);
}

#[test]
fn syntax_errors_name_the_expected_token() {
    for (text, at, message, hint) in [
        (
            "RETURN",
            6,
            "the text ends too early",
            "a number, a register, a packet field or '(' was expected here",
        ),
        ("RETURN 1", 8, "the text ends too early", "';' was expected here"),
        (
            "return 1;",
            7,
            "a number is not expected here",
            "'=', an operator with '=', '++' or '--' was expected here",
        ),
        (
            "if (1) THEN FI",
            7,
            "'THEN' is not expected here",
            "'=', an operator with '=', '++' or '--' was expected here",
        ),
        (
            "IF (1) then FI",
            7,
            "'then' is not expected here",
            "THEN was expected here; words of the language are in upper case",
        ),
        ("IF 1 THEN FI", 3, "a number is not expected here", "'(' was expected here"),
        (
            "IF (1) THEN R[0] = 1;",
            21,
            "the text ends too early",
            "a statement or ELSE or FI was expected here",
        ),
        ("IF (1) THEN ELSE ELSE FI", 17, "'ELSE' is not expected here", "a statement was expected here"),
        ("FI", 0, "'FI' is not expected here", "a statement was expected here"),
        ("1 = 2;", 0, "a number is not expected here", "a statement was expected here"),
        ("PKT.B[0] = 1;", 0, "'PKT' is not expected here", "a statement was expected here"),
        (
            "R[0] == 1;",
            5,
            "'==' is not expected here",
            "'=', an operator with '=', '++' or '--' was expected here",
        ),
        (
            "R[0] <= 1;",
            5,
            "'<=' is not expected here",
            "'=', an operator with '=', '++' or '--' was expected here",
        ),
        ("R 0 = 1;", 2, "a number is not expected here", "'[' was expected here"),
        ("R[0 = 1;", 4, "'=' is not expected here", "']' was expected here"),
        ("R[0] = R[1]++;", 11, "'++' is not expected here", "';' was expected here"),
        ("R[0] = ++R[1];", 7, "'++' inside of an expression", "'++' is a statement of its own: R[0]++;"),
        ("++1;", 2, "a number is not expected here", "R[n] or M[n] was expected here"),
        (
            "RETURN 1 < 2 < 3;",
            13,
            "comparisons do not follow one another",
            "use parentheses, or join two comparisons with &&",
        ),
        ("RETURN (1;", 9, "';' is not expected here", "')' was expected here"),
        ("RETURN PKT.B;", 11, "'B' lacks its offset", "PKT.B[0] is the first one of the packet"),
        (
            "RETURN PKT.X[0];",
            11,
            "'X' is not a unit of packet bytes",
            "units are B, W, DW, QW, and signed SB, SW, SDW, SQW",
        ),
        ("RETURN PKT[0];", 10, "'[' is not expected here", "'.' was expected here"),
        (
            "RETURN PKT.B[0].U8[0];",
            16,
            "'U8' is not a piece of 8 bits",
            "pieces are U1, U4, signed with S for U",
        ),
        (
            "RETURN PKT.QW[0].U64[0];",
            17,
            "'U64' is not a piece of 64 bits",
            "pieces are U1, U4, U8, U16, U32, signed with S for U",
        ),
        (
            "RETURN PKT.SW[0].U4[0];",
            17,
            "a piece of a signed number",
            "the piece alone decides about the sign: leave the S out before the bracket, write it here",
        ),
        ("RETURN HASH(1, 2);", 16, "')' is not expected here", "',' was expected here"),
        ("RETURN EXTERN(1, 2, 3);", 14, "a number is not expected here", "a name was expected here"),
        ("EXTERN(f, 1, 2)", 15, "the text ends too early", "';' was expected here"),
        ("BREAK", 5, "the text ends too early", "';' was expected here"),
        (
            "FOR (R[0] = 0; 1; R[0]++) ROF",
            15,
            "this is not a comparison of the loop's register",
            "a loop's test compares its register with its end: R[0] < 10",
        ),
        (
            "FOR (R[0] = 0; R[0] < 1; R[0] *= 2) ROF",
            25,
            "this is not a step of a loop",
            "a step is R[n] += step, R[n] -= step, R[n]++ or R[n]--",
        ),
        ("FOR (R[0] = 0; R[0] < 1) ROF", 23, "')' is not expected here", "';' was expected here"),
        (
            "FOR (R[0] = 0; R[0] < 1; R[0]++) FI",
            33,
            "'FI' is not expected here",
            "a statement was expected here",
        ),
        ("CONST = 1;", 6, "'=' is not expected here", "a name was expected here"),
        ("CONST FOR = 1;", 6, "'FOR' is a word of the language", "choose another name"),
        ("CONST U8 = 1;", 6, "'U8' is a word of the language", "choose another name"),
        ("MACRO f(a, a) = 1;", 11, "there are two parameters 'a'", "give each its own name"),
        ("MACRO f(a = 1;", 10, "'=' is not expected here", "')' was expected here"),
        (
            "IF (1) THEN CONST a = 1; FI",
            12,
            "CONST stands inside of a block",
            "definitions stand at the top of the text, outside of IF and FOR",
        ),
        (
            "RETURN 1 # 2;",
            9,
            "'#' means nothing here",
            "comments begin with //, definitions with CONST or MACRO",
        ),
    ] {
        let error = parse(text).expect_err(text);
        let start = error.span.map(|span| span.start);
        assert_eq!((start, error.message.as_str(), error.hint.as_str()), (Some(at), message, hint), "{text}");
    }
}

#[test]
fn nesting_and_length_have_limits() {
    let deep = |depth: usize| format!("RETURN {}1{};", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&deep(100)).is_ok());
    assert!(parse(&deep(100_000 / 4)).expect_err("too deep").message.contains("levels are nested"));
    let sum = |terms: usize| format!("RETURN 1{};", " + 1".repeat(terms));
    assert!(parse(&sum(200)).is_ok());
    assert!(parse(&sum(10_000)).expect_err("too deep").message.contains("levels are nested"));
    let blocks = "IF (1) THEN ".repeat(5000);
    assert!(parse(&blocks).expect_err("too deep").message.contains("levels are nested"));
    let minus = format!("RETURN {}1;", "- ".repeat(20_000));
    assert!(parse(&minus).expect_err("too deep").message.contains("levels are nested"));
    let long = " ".repeat(TEXT_MAX + 1);
    assert!(parse(&long).expect_err("too long").message.contains("65537 bytes"));
}
