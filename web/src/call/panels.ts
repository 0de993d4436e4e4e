export type PanelName = 'people' | 'statistics' | 'devices' | 'help'
