import { hydrateRoot } from 'react-dom/client';
import { Page } from './page.jsx';

const initial = JSON.parse(document.getElementById('initial').textContent);
hydrateRoot(document.getElementById('root'), <Page initial={initial} />);
