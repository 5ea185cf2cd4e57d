// Next.js needs a page.
export default () => 'a page';
