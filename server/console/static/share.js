// Goes on to the form of a new note. Without this script, the page has a button.

document.querySelector("form#share").requestSubmit();
