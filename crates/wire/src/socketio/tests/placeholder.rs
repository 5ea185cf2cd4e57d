use super::*;

fn renumbered(list: &str, taken: &mut Vec<usize>) -> String {
    let mut out = Vec::new();
    renumber_placeholders(&mut out, list, taken);
    String::from_utf8(out).unwrap()
}

#[test]
fn placeholders_are_found() {
    let list =
        r#"1,{"_placeholder":true,"num":12},[{"a":{ "num" : 3 , "_placeholder":true}}],"{\"_placeholder\""#;
    let found: Vec<_> = placeholders(list).collect();
    assert_eq!(found.iter().map(|found| found.number).collect::<Vec<_>>(), [12, 3]);
    assert_eq!(found.iter().map(|found| &list[found.digits.clone()]).collect::<Vec<_>>(), ["12", "3"]);
    // The complete object stands for the attachment.
    let nested = r#"{"x":{"_placeholder":true,"num":1},"num":0.0,"_placeholder":true,"y":[2]}"#;
    let found: Vec<_> = placeholders(nested).collect();
    assert_eq!((found.len(), found[0].number, found[0].object.clone()), (1, 0, 0..nested.len()));
    assert_eq!(renumbered(nested, &mut vec![7]), nested.replace("0.0", "1"));
    assert_eq!(placeholders("").count(), 0);
    // Not JSON: no panic.
    for list in ["{\"num\"é1", "{\"num\"", "{\"_placeholder\":true,\"num\":", "{\"", "{\"_placeholder\"ét"]
    {
        assert_eq!(placeholders(list).count(), 0, "{list}");
    }
    // In a packet without attachments, a malformed placeholder is an ordinary object.
    assert_eq!(placeholders(r#"{"_placeholder":true,"num":"x"},{"_placeholder":true,"num":4}"#).count(), 1);
}

#[test]
fn placeholders_are_renumbered() {
    let one = r#"{"_placeholder":true,"num":7}"#;
    let mut taken = Vec::new();
    assert_eq!(renumbered(r#""none",{}"#, &mut taken), r#""none",{}"#);
    assert_eq!(taken, [0; 0]);
    assert_eq!(renumbered(&format!("{one},{one}"), &mut taken), format!("{one},{one}").replace('7', "0"));
    assert_eq!(taken, [7]);
    // Several arguments with shared attachments, taken over one by one.
    let list = |numbers: [usize; 3]| numbers.map(|number| one.replace('7', &number.to_string())).join(" , ");
    assert_eq!(renumbered(&list([10, 7, 2]), &mut taken), list([1, 0, 2]));
    assert_eq!(taken, [7, 10, 2]);
}
